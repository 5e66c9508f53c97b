// Package web composes the API process's HTTP server: the /v1 API, the contracts of other servers, agents' tools, the
// reference pages and the operators' pages.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/duplex"
	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/secrets"
	"sandyard/jobs/security"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/tokens"
	"sandyard/web/bridge"
	"sandyard/web/e2b"
	"sandyard/web/middleware"
	v1 "sandyard/web/v1"
	"sandyard/web/workerclient"
)

// Config is what a Server stands on. All of it stays the caller's.
type Config struct {
	Store         *models.Store
	Jobs          *jobs.Client
	Secrets       *secrets.Keeper // nil = none can be written
	Waiters       *queue.Waiters
	Queue         *queue.Queue
	Security      *security.Counter // nil = nobody counts
	Redis         *redis.Options    // for the monitor, which opens connections of its own
	Metrics       prometheus.Gatherer
	PublicMetrics bool // /metrics needs no key
	Capabilities  []providers.Capabilities
	MaxBody       int // bytes; 0 = middleware.DefaultMaxBody
	// BodyMemory is how many bytes bodies and large answers may take; 0 = middleware.DefaultBodyMemory, or more for a
	// large MaxBody.
	BodyMemory    int
	TenantWaits   int            // requests of one tenant that wait at once; 0 = middleware.DefaultTenantWaits
	TenantStreams int            // streams of one tenant at once; 0 = middleware.DefaultTenantStreams
	Signer        *tokens.Signer // makes the tokens of sandboxes and ports
	Address       tokens.Address // where ports of sandboxes are reached; empty = nowhere
	// NoInternet keeps sandboxes from the internet that only ask for all of it, as E2B's clients do unless told otherwise.
	NoInternet bool
	// E2BPatience is how long a request of E2B's clients waits for its job; 0 = a little less than the minute after which
	// they give up.
	E2BPatience time.Duration
	Version     string
	Inside      Inside // the way into sandboxes
	Calls       Calls
	Log         *slog.Logger
}

// Calls is what the contracts follow that know no jobs.
type Calls struct {
	Timeout    time.Duration // how long their sandboxes live; 0 = calls.DefaultTimeout
	MaxTimeout time.Duration // 0 = calls.MaxTimeout
	Patience   time.Duration // how long a request waits for its job; 0 = calls.DefaultPatience
	// MCPPort and VSCodePort are of tools whose templates list such a port and do not say whose it is.
	MCPPort, VSCodePort int
	// OpenTenant is for whom ListenOpen works, which asks for no key; empty = there is no such listener.
	OpenTenant string
}

// Inside is the way into sandboxes.
type Inside = v1.Inside

// Server answers HTTP requests. Listen may be called for several listeners, Shutdown once.
type Server struct {
	mw      *middleware.Stack
	bridge  *bridge.Bridge
	v1      *v1.Server
	version string

	app     *fiber.App
	keyless *fiber.App // of ListenOpen
	// contracts are the documents of others than our own, by name.
	contracts map[string]*huma.OpenAPI
	closers   []func() error
	quit      context.CancelFunc
	onQuit    func(func()) (stop func() bool) // calls it when Shutdown begins

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
}

// New returns a server that answers once it listens.
func New(c Config) (*Server, error) {
	life, quit := context.WithCancel(context.Background())
	onQuit := func(f func()) func() bool { return context.AfterFunc(life, f) }
	s := &Server{version: c.Version, quit: quit, onQuit: onQuit}
	s.mw = middleware.New(middleware.Config{
		Store: c.Store, Waiters: c.Waiters, Security: c.Security, MaxBody: c.MaxBody, BodyMemory: c.BodyMemory,
		TenantWaits: c.TenantWaits, OnQuit: onQuit, Log: c.Log,
	})
	s.bridge = bridge.New(bridge.Config{Stack: s.mw, Store: c.Store, TenantStreams: c.TenantStreams, Log: c.Log})
	workers := workerclient.New(workerclient.Config{
		Store: c.Store, Signer: c.Signer, Wake: c.Inside.Wake, OnQuit: onQuit,
	})
	s.closers = append(s.closers, workers.Close, s.mw.Close)
	s.v1 = v1.New(v1.Config{
		Stack: s.mw, Bridge: s.bridge, Workers: workers, Store: c.Store, Jobs: c.Jobs, Secrets: c.Secrets,
		Waiters: c.Waiters, Queue: c.Queue, Capabilities: c.Capabilities, Inside: c.Inside, Signer: c.Signer,
		Address: c.Address, Version: c.Version, OnQuit: onQuit, Log: c.Log,
	})
	theirs := e2b.New(e2b.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Workers: workers, Signer: c.Signer, Address: c.Address,
		NoInternet: c.NoInternet, Patience: c.E2BPatience, Log: c.Log,
	})
	s.app = s.newApp()
	s.app.Use(s.mw.Serve)
	s.addCalls(c)
	theirs.AddFilters(s.app)
	s.v1.AddRoutes(s.app)
	s.addOperator(c)
	theirs.AddRoutes(s.app)
	return s, s.addDocs()
}

func (s *Server) newApp() *fiber.App {
	return fiber.New(fiber.Config{
		AppName:               "sandyard",
		BodyLimit:             s.mw.MaxBody,
		CaseSensitive:         true,
		DisableStartupMessage: true,
		// Bodies are taken by TakeBody, within BodyLimit, or go on to a sandbox as they come. Forms would be written to disk.
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ErrorHandler:                 s.mw.WriteError,
		IdleTimeout:                  2 * time.Minute,
		Immutable:                    true, // strings of a request go on into rows and maps
		ReadBufferSize:               16 << 10,
		ReadTimeout:                  time.Minute,
		WriteTimeout:                 time.Minute,
	})
}

// Routes lists what the server answers, as Fiber does, so that a check of every route misses none.
func (s *Server) Routes(ends ...bool) []fiber.Route { return s.app.GetRoutes(ends...) }

// Listen answers what arrives at l until Shutdown, and closes l.
func (s *Server) Listen(l net.Listener) error {
	return s.listen(s.app, l)
}

// ListenOpen answers clients without a key at l, for the tenant that Config names, until Shutdown, and closes l.
func (s *Server) ListenOpen(l net.Listener) error { return s.listen(s.keyless, l) }

func (s *Server) listen(app *fiber.App, l net.Listener) error {
	if !s.admit(l) {
		return l.Close()
	}
	err := app.Listener(duplex.Lingering(l))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) admit(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.listeners = append(s.listeners, l)
	}
	return !s.closed
}

// Shutdown takes no new connections, answers the clients that wait for a job at once with how it stands, and returns
// when the last request is answered or ctx is over.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	listeners := s.listeners
	s.mu.Unlock()
	s.quit()
	err := errors.Join(s.app.ShutdownWithContext(ctx), s.keyless.ShutdownWithContext(ctx))
	s.bridge.Shutdown(ctx)
	for _, l := range listeners {
		_ = l.Close() // it is closed already, unless its Listen was only about to begin
	}
	for _, c := range s.closers {
		err = errors.Join(err, c())
	}
	return err
}
