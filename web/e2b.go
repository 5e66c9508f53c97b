package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/passes"
	"sandyard/providers"
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
}

func (c *E2B) address() passes.Address {
	return passes.Address{Scheme: cmp.Or(c.Scheme, "http"), Domain: c.Domain}
}

// e2bPatience is how long a request waits for its job.
const e2bPatience = 55 * time.Second

func (s *Server) addE2B(c E2B) {
	e := &e2b{Server: s, signer: c.Signer, domain: c.Domain, noInternet: c.NoInternet}
	for _, base := range []string{"/sandboxes", "/v2/sandboxes"} {
		s.app.Use(base, e.serve)
		s.app.Post(base, e.create)
		s.app.Post(base+"/:id/connect", e.connect)
	}
	s.app.Get("/sandboxes", e.listRunning)
	s.app.Get("/v2/sandboxes", e.list)
	s.app.Get("/sandboxes/:id", e.get)
	s.app.Delete("/sandboxes/:id", e.kill)
	s.app.Post("/sandboxes/:id/pause", e.pause)
	s.app.Post("/sandboxes/:id/resume", e.resume)
	s.app.Post("/sandboxes/:id/timeout", e.setTimeout)
	s.app.Put("/sandboxes/:id/network", e.setNetwork)
	s.app.Post("/sandboxes/:id/refreshes", e.refresh)
	s.app.Get("/sandboxes/:id/metrics", e.metrics)
	s.app.Get("/sandboxes/:id/logs", e.logsV1)
	s.app.Get("/v2/sandboxes/:id/logs", e.logs)
}

// e2b is the Server as E2B's clients see it.
type e2b struct {
	*Server
	signer     *passes.Signer
	domain     string
	noInternet bool
}

// e2bError is the body of E2B's errors.
type e2bError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// serve asks for an API key and writes errors as E2B does.
func (e *e2b) serve(c *fiber.Ctx) error {
	err := e.authorize(c, bearer(c), models.ScopeSandboxes)
	if err == nil {
		return nil
	}
	p := e.report(c.UserContext(), requestOf(c.UserContext()), err)
	switch p.Status {
	case fiber.StatusGone:
		p.Status = fiber.StatusNotFound
	case fiber.StatusUnprocessableEntity:
		p.Status = fiber.StatusBadRequest
	}
	return c.Status(p.Status).JSON(e2bError{p.Status, p.Detail})
}

// options go with every job of a request.
func (e *e2b) options(ctx context.Context) jobs.Options {
	r := requestOf(ctx)
	return jobs.Options{TenantID: r.tenant, Actor: r.key}
}

// carryOut waits for the job that was submitted, and returns its sandbox afterwards.
func (e *e2b) carryOut(ctx context.Context, done models.Submitted, err error) (models.Sandbox, error) {
	if err != nil {
		return models.Sandbox{}, err
	}
	job, err := e.poll(ctx, e.waiters.WaitNew, answer(done).ID, e2bPatience)
	switch {
	case err != nil:
		return models.Sandbox{}, err
	case !job.State.Terminal():
		return models.Sandbox{}, newProblem(http.StatusGatewayTimeout, "timeout",
			fmt.Sprintf("job %s has not ended in time; it goes on", job.ID))
	case job.State != models.Succeeded:
		return models.Sandbox{}, e2bFailure(job)
	}
	return e.store.Sandbox(ctx, job.TenantID, job.SandboxID)
}

// e2bFailure is the answer that a failed job means.
func e2bFailure(job models.Job) error {
	why := models.JobError{Code: string(job.State), Message: fmt.Sprintf("job %s ended %s", job.ID, job.State)}
	if job.Error != nil {
		why = *job.Error
	}
	switch providers.Class(why.Code) {
	case providers.Capacity, providers.RateLimited, providers.Unavailable:
		return newProblem(http.StatusServiceUnavailable, why.Code, why.Message)
	case providers.NotFound, providers.Lost:
		return newProblem(http.StatusNotFound, why.Code, why.Message)
	case providers.Invalid:
		return newProblem(http.StatusBadRequest, why.Code, why.Message)
	}
	return newProblem(http.StatusInternalServerError, why.Code, why.Message)
}

// read decodes a body; an empty one leaves into as it is.
func (e *e2b) read(c *fiber.Ctx, into any) error {
	if len(c.Body()) == 0 {
		return nil
	}
	if err := checkJSON(c.Body()); err != nil {
		return err
	}
	if err := json.Unmarshal(c.Body(), into); err != nil {
		return newProblem(http.StatusBadRequest, "malformed_request", "the body is not the JSON of this request: "+err.Error())
	}
	return nil
}

// live returns the sandbox of the path if it runs or is paused.
func (e *e2b) live(c *fiber.Ctx) (models.Sandbox, error) {
	box, err := e.store.Sandbox(c.UserContext(), requestOf(c.UserContext()).tenant, c.Params("id"))
	if err == nil && (box.Ended() || box.Desired == models.DesiredDeleted) {
		err = models.ErrNotFound
	}
	if err == nil && box.State == models.SandboxCreating {
		err = newProblem(http.StatusConflict, "sandbox_busy", "the sandbox is being created; try again when it runs")
	}
	return box, err
}
