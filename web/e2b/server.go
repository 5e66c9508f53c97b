// Package e2b answers E2B's clients: the routes of its API, after its OpenAPI document. What they make are ordinary
// sandboxes, and whatever is done to one is an ordinary job. Package edge answers what they send to a sandbox itself.
// docs/e2b.md says what works and what is different here.
package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/workerclient"
)

// Config is what a server stands on. All of it stays the caller's.
type Config struct {
	Stack *middleware.Stack
	Jobs  *jobs.Client
	Store *models.Store
	// Workers answer what a sandbox uses.
	Workers *workerclient.Client
	// Signer makes the tokens of sandboxes and ports.
	Signer *tokens.Signer
	// Address is where the edge is reached: a port of a sandbox is at {port}-{id}.{domain}.
	Address tokens.Address
	// NoInternet keeps sandboxes from the internet that only ask for all of it, as these clients do unless told otherwise.
	NoInternet bool
	// Patience is how long a request waits for its job; 0 = a little less than the minute after which these clients give
	// up.
	Patience time.Duration
	Log      *slog.Logger
}

const patience = 55 * time.Second

// How long a sandbox lives that says nothing about it, in seconds, by the version of the route.
const (
	timeoutV1 = 15
	timeoutV2 = 300
)

// Server holds the routes.
type Server struct{ Config }

// New returns a server.
func New(c Config) *Server {
	c.Patience = cmp.Or(c.Patience, patience)
	return &Server{c}
}

// AddFilters lets requests for E2B's paths pass that have a key, and answers in E2B's words, and to pages of any
// origin, whatever becomes of them.
func (e *Server) AddFilters(app fiber.Router) {
	allow, admit := allowPages(), func(c *fiber.Ctx) error {
		return e.Stack.Authorize(c, middleware.Bearer(c), models.ScopeSandboxes)
	}
	for _, base := range bases() {
		app.Use(base, allow, e.explain, admit, e.countWait, e.Stack.TakeBody)
	}
}

// countWait counts what changes something among the tenant's waits: it is answered when its job has ended.
func (e *Server) countWait(c *fiber.Ctx) error {
	if c.Method() == fiber.MethodGet {
		return c.Next()
	}
	leave, err := e.Stack.Waits.Enter(middleware.RequestOf(c.UserContext()).Tenant)
	if err != nil {
		return err
	}
	defer leave()
	return c.Next()
}

// AddRoutes adds the routes. They stand behind AddFilters.
func (e *Server) AddRoutes(app fiber.Router) {
	done := func(do fiber.Handler) fiber.Handler { return middleware.Then(http.StatusNoContent, do) }
	app.Post("/sandboxes", e.create(timeoutV1))
	app.Post("/v2/sandboxes", e.create(timeoutV2))
	app.Get("/sandboxes", e.listRunning)
	app.Get("/v2/sandboxes", e.list)
	app.Get("/sandboxes/metrics", e.allMetrics)
	app.Get("/sandboxes/:id", e.get)
	app.Delete("/sandboxes/:id", done(e.kill))
	app.Post("/sandboxes/:id/connect", e.connect(0))
	app.Post("/v2/sandboxes/:id/connect", e.connect(timeoutV2))
	app.Post("/sandboxes/:id/pause", done(e.pause))
	app.Post("/sandboxes/:id/resume", e.resume)
	app.Post("/sandboxes/:id/timeout", done(e.setTimeout))
	app.Put("/sandboxes/:id/network", done(e.setNetwork))
	app.Post("/sandboxes/:id/refreshes", done(e.refresh))
	app.Get("/sandboxes/:id/metrics", e.metrics)
	app.Get("/sandboxes/:id/logs", e.logsV1)
	app.Get("/v2/sandboxes/:id/logs", e.logs)
	app.Post("/sandboxes/:id/snapshots", e.cannot("snapshots of sandboxes"))
	app.Post("/sandboxes/:id/fork", e.cannot("forks of sandboxes"))
}

// bases are where the paths of E2B's API begin, also of those parts of it that are not here at all: their clients are
// told so in E2B's words.
func bases() []string {
	return []string{
		"/sandboxes",
		"/v2/sandboxes",
		"/snapshots",
		"/templates",
		"/v2/templates",
		"/v3/templates",
		"/volumes",
		"/secrets",
	}
}

// options go with a request's one job. An Idempotency-Key stands for it, as on our own routes.
func (e *Server) options(c *fiber.Ctx) (jobs.Options, error) {
	r, key := middleware.RequestOf(c.UserContext()), c.Get("Idempotency-Key")
	r.Act(c.Method(), c.Route().Path)
	if key != "" {
		r.Digest = middleware.Digest(c.Method(), c.Path(), c.Request().Body())
	}
	return r.Keyed(key)
}

// change submits a request's one job on its sandbox and waits for its end. It stands outside the order of the sandbox's
// jobs, of which E2B's clients know nothing: a pause, say, waits for no command.
func (e *Server) change(c *fiber.Ctx, sandboxID string, args kind.Args) (models.Sandbox, error) {
	o, err := e.options(c)
	if err != nil {
		return models.Sandbox{}, err
	}
	o.Parallel = true
	done, err := e.Jobs.Submit(c.UserContext(), sandboxID, args, o)
	return e.carryOut(c.UserContext(), done, err)
}

// carryOut waits for the job that was submitted, and returns its sandbox afterwards.
func (e *Server) carryOut(ctx context.Context, done models.Submitted, err error) (models.Sandbox, error) {
	if err != nil {
		return models.Sandbox{}, err
	}
	job, box, err := e.Stack.Follow(ctx, done, e.Patience)
	if err == nil && job.State != models.Succeeded {
		err = failureOf(job, box)
	}
	return box, err
}

// read decodes a body; an empty one leaves into as it is.
func (e *Server) read(c *fiber.Ctx, into any) error {
	body := c.Request().Body() // not c.Body(), which decompresses without a limit
	if len(body) == 0 {
		return nil
	}
	if err := middleware.CheckJSON(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return problem.New(
			http.StatusBadRequest,
			"malformed_request",
			"the body does not match this request: "+err.Error(),
		)
	}
	return nil
}

// readSeconds checks a number of seconds of a body; where it is missing, none stands for it, and 0 for none means that
// it must not be missing. No sandbox lives shorter than a second.
func readSeconds(field string, given *float64, none float64) (float64, error) {
	switch {
	case given == nil && none == 0:
		return 0, problem.New(http.StatusBadRequest, "invalid_request", "body."+field+" is missing")
	case given == nil:
		return none, nil
	case *given < 0 || math.IsNaN(*given):
		return 0, problem.New(http.StatusBadRequest, "invalid_request", "body."+field+" must not be negative")
	}
	return max(*given, 1), nil
}

// live returns the sandbox of the path if it runs or is paused.
func (e *Server) live(c *fiber.Ctx) (models.Sandbox, error) {
	box, err := e.Store.Sandbox(c.UserContext(), middleware.RequestOf(c.UserContext()).Tenant, c.Params("id"))
	if err == nil && (box.Ended() || box.Desired == models.DesiredDeleted) {
		err = models.ErrNotFound
	}
	if err == nil && box.State == models.SandboxCreating {
		err = problem.New(http.StatusConflict, "sandbox_busy", "the sandbox is being created; try again when it is running")
	}
	return box, err
}
