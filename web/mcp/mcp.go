// Package mcp serves agents' tools over the Model Context Protocol, as streamable HTTP at /mcp: every tool is a job, or
// a question about one, like the routes of the other contracts.
//
// Nothing of a session lives in a process, because the next request of a conversation may reach another one. The
// protocol's library therefore runs stateless: each POST is a connection of its own. The session's id is handed out at
// initialize and is only a name: what belongs to it is in PostgreSQL, its sandbox under a key and its calls under
// idempotency keys. Protocol versions without sessions are not offered; their clients fall back to one that has them.
//
// The library wants net/http, while the API is Fiber's. Fiber admits a request and reads its body, within the bounds
// and the memory of all bodies. Then the request crosses over, as streams of files do: it counts among the tenant's
// streams, and net/http has its connection, streams the answer, sees when the client is gone, and ends it when its key
// is revoked.
package mcp

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/cache"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
	"sandyard/web/calls"
	"sandyard/web/middleware"
)

// Path is where the server is.
const Path = "/mcp"

// Config is what a server stands on. All of it stays the caller's.
type Config struct {
	Stack *middleware.Stack
	Jobs  *jobs.Client
	Store *models.Store
	Calls *calls.Calls
	// Cross hands a request over to net/http, at a path and with the named headers.
	Cross func(c *fiber.Ctx, path string, headers []string, handle http.HandlerFunc) error
	// Output reads the output of a command that runs in a sandbox of the request's tenant.
	Output func(ctx context.Context, sandboxID, exec string, q providers.OutputQuery) (providers.Output, error)
	// Port returns how the port is reached that a job has opened.
	Port func(models.Job) (kind.PortResult, error)
	// Limits returns the limits that hold for a request, with what is in use of them.
	Limits func(context.Context) ([]models.LimitUse, error)
	// OnQuit has a function called when the process begins to stop.
	OnQuit   func(func()) (stop func() bool)
	Lifetime time.Duration // of a session's sandbox, which its idle timeout ends sooner
	Network  bool          // sandboxes of sessions may connect to public addresses where their template does not say
	Version  string
}

// patience is how long a call waits for its job.
const patience = toolset.Patience

// Server answers clients of the protocol.
type Server struct {
	c       Config
	mw      *middleware.Stack
	handler http.Handler

	known *cache.Cache[string, string] // by tenant and session: the sandbox that it worked in last

	named    map[string][]string // the tools of each set, and each tool, by name
	setNames []string

	quit context.Context // over when the process begins to stop
}

// New returns a server.
func New(c Config) *Server {
	quit, cancel := context.WithCancel(context.Background())
	c.OnQuit(cancel)
	s := &Server{c: c, mw: c.Stack, quit: quit, known: cache.New[string, string](maxKnown, 0)}
	server := s.library()
	s.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true, DisableLocalhostProtection: true, // no page of a browser has an API key
		MaxRequestBodyBytes: -1, // the body is in memory already
	})
	return s
}

// instructions tell the model what it cannot see in the tools.
const instructions = "Tools that work in a sandbox, a Linux container of this conversation. It is made when a tool " +
	"first needs it and ends " +
	"after an hour without use. No call takes longer than 25 seconds: a command that runs longer answers running=true " +
	"with exec_id and " +
	"cursor; call shell_wait with both to follow it. Paths are relative to the work directory. Give sandbox to work in " +
	"another sandbox."

func (s *Server) library() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "sandyard", Version: s.c.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
		SupportedProtocolVersions: slices.DeleteFunc(
			mcp.SupportedProtocolVersions(),
			func(v string) bool { return v > lastWithSessions },
		),
	})
	for _, t := range s.index(s.sets()) {
		server.AddTool(t.about, t.handle)
	}
	s.addResources(server)
	server.AddReceivingMiddleware(s.guard, onlyChosen)
	return server
}

// lastWithSessions is the last version of the protocol whose clients send the id of their session.
const lastWithSessions = "2025-11-25"

// AddRoutes adds the routes.
func (s *Server) AddRoutes(app fiber.Router) {
	key := s.mw.NeedKey(models.ScopeSandboxes)
	app.Post(Path, key, s.mw.TakeBody, s.post)
	// A session ends with its sandbox's timeouts: others of the conversation may still use it.
	app.Delete(Path, key, func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	app.Get(Path, key, func(c *fiber.Ctx) error { // there is nothing to say but in answers
		c.Set(fiber.HeaderAllow, "POST, DELETE")
		return fiber.ErrMethodNotAllowed
	})
}

// headers are those that reach the library.
func headers() []string {
	return []string{fiber.HeaderAccept, fiber.HeaderContentType, sessionHeader, "Mcp-Protocol-Version", "Last-Event-ID"}
}

// post answers one message.
func (s *Server) post(c *fiber.Ctx) error {
	of, err := s.sessionOf(c)
	if err != nil {
		return err
	}
	body := c.Request().Body() // its own memory, which outlives the request's
	m, err := readMessage(body)
	if err != nil {
		return err
	}
	if m.Method == "notifications/cancelled" { // also where the tenant may open no more streams
		if err := s.cancelled(c.UserContext(), of, m); err != nil {
			return err
		}
		return c.SendStatus(fiber.StatusAccepted)
	}
	r := middleware.RequestOf(c.UserContext())
	r.Submits = true // a call that changes something itself begins its entry of the audit log
	r.Act(c.Method(), Path)
	return s.c.Cross(c, Path, headers(), func(w http.ResponseWriter, req *http.Request) {
		s.serve(w, req, of, m, body)
	})
}

// serve answers a message through the library.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, of session, m message, body []byte) {
	if m.Method == "initialize" {
		w.Header().Set(sessionHeader, models.NewID(sessionPrefix))
	}
	ctx := context.WithValue(r.Context(), callKey{}, newCall(r.Context(), of, m))
	s.handler.ServeHTTP(w, withBody(r.WithContext(ctx), body))
}
