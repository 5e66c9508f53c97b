package web

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/passes"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// E2B lets E2B's clients work with Sandyard's sandboxes. Its routes follow E2B's OpenAPI document; what they make are
// ordinary sandboxes, made and removed by ordinary jobs.
type E2B struct {
	Signer *passes.Signer
	// Domain is where the edge is reached: a port of a sandbox is at {port}-{id}.{domain}.
	Domain string
	Scheme string // of the URLs of ports; empty = http
	// NoInternet keeps sandboxes from the internet that only ask for all of it, as these clients do unless told otherwise.
	NoInternet bool
	// Patience is how long a request waits for its job; 0 = a little less than the minute after which these clients give up.
	Patience time.Duration
}

func (c *E2B) address() passes.Address {
	return passes.Address{Scheme: cmp.Or(c.Scheme, "http"), Domain: c.Domain}
}

const e2bPatience = 55 * time.Second

// How long a sandbox lives that says nothing about it, in seconds, by the version of the route.
const (
	e2bTimeout   = 15
	e2bTimeoutV2 = 300
)

// openE2B lets requests for E2B's paths pass that have a key, and answers in E2B's words, and to pages of any origin,
// whatever becomes of them. Where there are to be none it returns nil.
func (s *Server) openE2B(c *E2B) *e2b {
	if c == nil {
		return nil
	}
	e := &e2b{
		Server: s, signer: c.Signer, domain: c.Domain, noInternet: c.NoInternet, patience: cmp.Or(c.Patience, e2bPatience),
	}
	allow, admit := allowPages(), func(c *fiber.Ctx) error { return s.mw.Authorize(c, middleware.Bearer(c), models.ScopeSandboxes) }
	for _, base := range e2bBases() {
		s.app.Use(base, allow, e.explain, admit, e.countWait, s.mw.TakeBody)
	}
	return e
}

// countWait counts what changes something among the tenant's waits: it is answered when its job has ended.
func (e *e2b) countWait(c *fiber.Ctx) error {
	if c.Method() == fiber.MethodGet {
		return c.Next()
	}
	leave, err := e.mw.Waits.Enter(middleware.RequestOf(c.UserContext()).Tenant)
	if err != nil {
		return err
	}
	defer leave()
	return c.Next()
}

func (e *e2b) addRoutes() {
	if e == nil {
		return
	}
	s := e.Server
	s.app.Post("/sandboxes", e.create(e2bTimeout))
	s.app.Post("/v2/sandboxes", e.create(e2bTimeoutV2))
	s.app.Get("/sandboxes", e.listRunning)
	s.app.Get("/v2/sandboxes", e.list)
	s.app.Get("/sandboxes/metrics", e.allMetrics)
	s.app.Get("/sandboxes/:id", e.get)
	s.app.Delete("/sandboxes/:id", e.kill)
	s.app.Post("/sandboxes/:id/connect", e.connect(0))
	s.app.Post("/v2/sandboxes/:id/connect", e.connect(e2bTimeoutV2))
	s.app.Post("/sandboxes/:id/pause", e.pause)
	s.app.Post("/sandboxes/:id/resume", e.resume)
	s.app.Post("/sandboxes/:id/timeout", e.setTimeout)
	s.app.Put("/sandboxes/:id/network", e.setNetwork)
	s.app.Post("/sandboxes/:id/refreshes", e.refresh)
	s.app.Get("/sandboxes/:id/metrics", e.metrics)
	s.app.Get("/sandboxes/:id/logs", e.logsV1)
	s.app.Get("/v2/sandboxes/:id/logs", e.logs)
	s.app.Post("/sandboxes/:id/snapshots", e.cannot("snapshots of sandboxes"))
	s.app.Post("/sandboxes/:id/fork", e.cannot("forks of sandboxes"))
}

// e2bBases are where the paths of E2B's API begin, also of those parts of it that are not here at all: their clients are
// told so in E2B's words.
func e2bBases() []string {
	return []string{"/sandboxes", "/v2/sandboxes", "/snapshots", "/templates", "/v2/templates", "/v3/templates", "/volumes", "/secrets"}
}

// e2b is the Server as E2B's clients see it.
type e2b struct {
	*Server
	signer     *passes.Signer
	domain     string
	noInternet bool
	patience   time.Duration
}

// options go with a request's one job. An Idempotency-Key stands for it, as on our own routes.
func (e *e2b) options(c *fiber.Ctx) (jobs.Options, error) {
	p := SubmitParams{IdempotencyKey: c.Get("Idempotency-Key")}
	middleware.RequestOf(c.UserContext()).Act(c.Method(), c.Route().Path)
	if p.IdempotencyKey != "" {
		middleware.RequestOf(c.UserContext()).Digest = middleware.Digest(c.Method(), c.Path(), c.Request().Body())
	}
	return p.options(c.UserContext(), Submit{})
}

// change submits a request's one job on its sandbox and waits for its end. It stands outside the order of the sandbox's
// jobs, of which E2B's clients know nothing: a pause, say, waits for no command.
func (e *e2b) change(c *fiber.Ctx, sandbox string, args jobs.Args) (models.Sandbox, error) {
	o, err := e.options(c)
	if err != nil {
		return models.Sandbox{}, err
	}
	o.Parallel = true
	done, err := e.jobs.Submit(c.UserContext(), sandbox, args, o)
	return e.carryOut(c.UserContext(), done, err)
}

// carryOut waits for the job that was submitted, and returns its sandbox afterwards.
func (e *e2b) carryOut(ctx context.Context, done models.Submitted, err error) (models.Sandbox, error) {
	if err != nil {
		return models.Sandbox{}, err
	}
	job, box, err := e.mw.Follow(ctx, done, e.patience)
	if err == nil && job.State != models.Succeeded {
		err = e2bFailure(job, box)
	}
	return box, err
}

// read decodes a body; an empty one leaves into as it is.
func (e *e2b) read(c *fiber.Ctx, into any) error {
	body := c.Request().Body() // not c.Body(), which decompresses without a limit
	if len(body) == 0 {
		return nil
	}
	if err := middleware.CheckJSON(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return problem.New(http.StatusBadRequest, "malformed_request", "the body is not the JSON of this request: "+err.Error())
	}
	return nil
}

// e2bSeconds checks a number of seconds of a body; where it is missing, none stands for it, and 0 for none means that it
// must not be missing. No sandbox lives shorter than a second.
func e2bSeconds(field string, given *float64, none float64) (float64, error) {
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
func (e *e2b) live(c *fiber.Ctx) (models.Sandbox, error) {
	box, err := e.store.Sandbox(c.UserContext(), middleware.RequestOf(c.UserContext()).Tenant, c.Params("id"))
	if err == nil && (box.Ended() || box.Desired == models.DesiredDeleted) {
		err = models.ErrNotFound
	}
	if err == nil && box.State == models.SandboxCreating {
		err = problem.New(http.StatusConflict, "sandbox_busy", "the sandbox is being created; try again when it is running")
	}
	return box, err
}
