// Package daytona answers Daytona's official clients: its API below /daytona/api and its toolbox below
// /daytona/toolbox. What they make are ordinary sandboxes, and whatever is done in one is an ordinary job.
// docs/daytona.md says what works and what is different here.
package daytona

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Config is what a server stands on. All of it stays the caller's.
type Config struct {
	Stack *middleware.Stack
	Calls *calls.Calls
	Store *models.Store
	// Cross hands a request over to net/http, which upgrades connections: at a path, with the named headers.
	Cross func(c *fiber.Ctx, path string, headers []string, handle http.HandlerFunc) error
	// Inside passes a request on to a sandbox's gateway, where its path is known.
	Inside Inside
}

// Inside answers a request as a sandbox's gateway does. What does not come about is told to refuse.
type Inside func(
	w http.ResponseWriter,
	r *http.Request,
	sandboxID string,
	refuse func(http.ResponseWriter, *http.Request, error),
)

// Server holds the routes.
type Server struct{ *core }

// core is what all routes stand on. A type for each subject embeds it.
type core struct {
	mw    *middleware.Stack
	calls *calls.Calls
	store *models.Store
	cross func(c *fiber.Ctx, path string, headers []string, handle http.HandlerFunc) error
	into  Inside
}

// maxCommand is how long a request waits for the command that it runs.
const maxCommand = time.Hour

// New returns a server.
func New(c Config) *Server {
	return &Server{&core{
		mw: c.Stack, calls: c.Calls.Patient(maxCommand + 10*time.Second), store: c.Store, cross: c.Cross, into: c.Inside,
	}}
}

// Where the routes begin.
const (
	base    = "/daytona"
	api     = base + "/api"
	toolbox = base + "/toolbox"
)

// AddRoutes adds the routes. What Daytona has and this server has not is refused in Daytona's words.
func (s *Server) AddRoutes(app fiber.Router) {
	app.Use(base, s.explain, s.admit)
	r, files, sessions := routes{app}, &files{s.core}, &sessions{s.core}
	r.get(toolbox+"/:id/process/session/:session/command/:command/logs", sessions.logs) // it may become a WebSocket
	r.get(toolbox+"/:id/files/download", files.download)
	files.addUploads(r)
	app.Use(base, s.mw.TakeBody)
	(&sandboxes{s.core}).addControl(r)
	(&processes{s.core}).addProcess(r)
	sessions.addSessions(r)
	files.addFiles(r)
	(&gitRoutes{s.core}).addGit(r)
	app.Use(base, func(*fiber.Ctx) error {
		return problem.New(
			http.StatusNotImplemented,
			"unsupported_operation",
			"this server does not offer this operation; docs/daytona.md lists what it offers",
		)
	})
}

// routes adds handlers whose requests stand in the audit log by their routes.
type routes struct{ app fiber.Router }

func (r routes) get(path string, h fiber.Handler)    { r.app.Get(path, act, h) }
func (r routes) post(path string, h fiber.Handler)   { r.app.Post(path, act, h) }
func (r routes) put(path string, h fiber.Handler)    { r.app.Put(path, act, h) }
func (r routes) remove(path string, h fiber.Handler) { r.app.Delete(path, act, h) }

func act(c *fiber.Ctx) error {
	middleware.RequestOf(c.UserContext()).Act(c.Method(), c.Route().Path)
	return c.Next()
}

func (s *core) admit(c *fiber.Ctx) error {
	return s.mw.Authorize(c, middleware.Bearer(c), models.ScopeSandboxes)
}

// explain writes errors as Daytona does.
func (s *core) explain(c *fiber.Ctx) error {
	err := c.Next()
	if err == nil {
		return nil
	}
	p := s.report(c.UserContext(), err)
	p.SetHeaders(middleware.Setter(c))
	if p.Status == fiber.StatusRequestEntityTooLarge {
		duplex.LingerAfter(c.Context().Conn())
	}
	return c.Status(p.Status).JSON(failureOf(p, c.Method(), c.Path()))
}

// over goes on with a request by net/http, which streams both ways. An error of handle is the answer.
func (s *core) over(
	c *fiber.Ctx,
	headers []string,
	handle func(w http.ResponseWriter, r *http.Request) error,
) error {
	r, conn, method, path := middleware.RequestOf(c.UserContext()), c.Context().Conn(), c.Method(), c.Path()
	r.Submits = true // what is no job begins its entry of the audit log itself
	r.Held = r.Held.Or(s.mw, r.Tenant)
	return s.cross(c, "/files", headers, func(w http.ResponseWriter, req *http.Request) {
		err := handle(w, req)
		if err == nil {
			return
		}
		if req.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client is gone, or this server is ending
		}
		duplex.LingerAfter(conn) // the client may still send
		p := s.report(req.Context(), err)
		p.SetHeaders(w.Header().Set)
		answer(w, p.Status, failureOf(p, method, path))
	})
}

func answer(w http.ResponseWriter, status int, doc any) {
	w.Header().Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // a client that is gone needs no answer
}

func (s *core) report(ctx context.Context, err error) *problem.Problem {
	return renumber(s.mw.Report(ctx, middleware.RequestOf(ctx), err))
}

// fault is what an error means that is not the answer to its request, or only a part of it.
func (s *core) fault(err error) *problem.Problem {
	if err == nil {
		return &problem.Problem{}
	}
	return renumber(problem.Of(err, s.mw.MaxBody))
}

// renumber gives a problem the status that Daytona's clients know.
func renumber(p *problem.Problem) *problem.Problem {
	switch {
	case p.Code == sessionEnded || p.Code == commandEnded:
	case p.Status == http.StatusGone:
		p.Status = http.StatusNotFound
	case p.Status == http.StatusUnprocessableEntity:
		p.Status = http.StatusBadRequest
	}
	return p
}

// failure is the body of every error: that of the API, and of the toolbox, which has more fields.
type failure struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Error      string `json:"error"`
	Path       string `json:"path"`
	Timestamp  string `json:"timestamp"`
	Code       string `json:"code,omitempty"`
	Source     string `json:"source,omitempty"`
	Method     string `json:"method,omitempty"`
}

func failureOf(p *problem.Problem, method, path string) failure {
	f := failure{
		StatusCode: p.Status,
		Message:    p.Detail,
		Error:      http.StatusText(p.Status),
		Path:       path,
		Timestamp:  stamp(time.Now()),
	}
	if strings.HasPrefix(path, toolbox+"/") {
		f.Code, f.Source, f.Method = codeOf(p), "DAYTONA_DAEMON", method
	}
	return f
}

// codeOf is the toolbox's name for an error.
func codeOf(p *problem.Problem) string {
	switch p.Code {
	case "file_not_found", "not_a_directory":
		return "FILE_NOT_FOUND"
	case "permission_denied", "invalid_path":
		return "FILE_ACCESS_DENIED"
	case "timeout":
		return "PROCESS_EXECUTION_TIMEOUT"
	case sessionEnded:
		return "SESSION_ENDED"
	case commandEnded:
		return "COMMAND_ALREADY_COMPLETED"
	case gitFailed:
		_, code := gitFault(p.Detail)
		return code
	}
	switch p.Status {
	case http.StatusBadRequest:
		return "BAD_REQUEST"
	case http.StatusUnauthorized:
		return "UNAUTHORIZED"
	case http.StatusForbidden:
		return "FORBIDDEN"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "CONFLICT"
	case http.StatusRequestTimeout:
		return "REQUEST_TIMEOUT"
	}
	return "INTERNAL_SERVER_ERROR"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// unsupported refuses what was asked for and cannot be done here.
func unsupported(what string) error {
	return problem.New(
		http.StatusBadRequest,
		"unsupported_operation",
		what+" is not supported here; docs/daytona.md says what is",
	)
}

// body is a handler of requests with a body, which it decodes for do.
func body[T any](do func(c *fiber.Ctx, in *T) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var in T
		if err := middleware.Decode(c.Request().Body(), &in); err != nil {
			return err
		}
		return do(c, &in)
	}
}

// inside returns the sandbox of a request to its toolbox, which must run, and counts the request as activity.
func (s *core) inside(c *fiber.Ctx) (models.Sandbox, error) {
	ctx := c.UserContext()
	box, err := s.calls.Sandbox(ctx, c.Params("id"))
	if err != nil {
		return box, err
	}
	if box.State != models.SandboxRunning || box.Desired != models.DesiredRunning {
		return box, problem.New(http.StatusConflict, "sandbox_not_running", "the sandbox is "+stateOf(box)+"; start it first")
	}
	return box, s.touch(ctx, box, false)
}

// touch lets the time without activity begin anew. Database and server may tell different times: this one only says
// whether the job is worth it.
func (s *core) touch(ctx context.Context, box models.Sandbox, always bool) error {
	span := time.Duration(box.TimeoutMS) * time.Millisecond
	if !always && time.Until(box.ExpiresAt) > span-min(span/10, time.Minute) {
		return nil
	}
	_, err := s.calls.Do(ctx, box.ID, &kind.SetTimeout{TimeoutSeconds: span.Seconds(), OnlyLater: true})
	return err
}
