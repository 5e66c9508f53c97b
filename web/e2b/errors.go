package e2b

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Error codes that E2B's clients know.
const (
	codeNoCapacity  = "sandbox_capacity_unavailable"
	codeNotPlaced   = "sandbox_placement_timeout"
	codeNotMade     = "sandbox_create_failed"
	codeServerError = "internal_server_error"
	codeKeyMismatch = "idempotency_request_mismatch"
	codeUnknown     = "idempotency_outcome_unknown"
	retrySeconds    = 1
)

// errorDoc is the body of E2B's errors.
type errorDoc struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// explain writes errors as E2B does.
func (e *Server) explain(c *fiber.Ctx) error {
	err := c.Next()
	if err == nil {
		return nil
	}
	p := e.Stack.Report(c.UserContext(), middleware.RequestOf(c.UserContext()), err)
	switch {
	case p.Code == "route_not_found": // 404 would mean the sandbox
		p.Status = fiber.StatusNotImplemented
	case p.Status == fiber.StatusGone:
		p.Status = fiber.StatusNotFound
	case p.Status == fiber.StatusUnprocessableEntity:
		p.Status = fiber.StatusBadRequest
	}
	p.SetHeaders(middleware.Setter(c))
	if p.Status == fiber.StatusRequestEntityTooLarge {
		duplex.LingerAfter(c.Context().Conn())
	}
	if c.Get("Idempotency-Key") == "" && (p.Code == "outcome_unknown" || p.Code == codeNotPlaced) {
		c.Set("Should-Retry", "false") // some clients would by themselves, and get a second sandbox
	}
	return c.Status(p.Status).JSON(errorDoc{p.Status, p.Detail, codeOf(p.Code)})
}

// codeOf is the name of an error where E2B has one of its own for it.
func codeOf(code string) string {
	return cmp.Or(map[string]string{
		"internal_error": codeServerError, "idempotency_key_reused": codeKeyMismatch, "outcome_unknown": codeUnknown,
	}[code], code)
}

// failureOf is the answer that a job means which has not succeeded.
func failureOf(job models.Job, box models.Sandbox) error {
	why := models.JobError{Code: string(job.State), Message: fmt.Sprintf("job %s ended %s", job.ID, job.State)}
	if job.Error != nil {
		why = *job.Error
	}
	create := job.Kind == models.KindCreate
	switch {
	case !job.State.Terminal():
		return later(
			http.StatusGatewayTimeout,
			create,
			codeNotPlaced,
			"timeout",
			fmt.Sprintf("job %s has not ended in time; it continues", job.ID),
		)
	case job.State == models.Expired, job.State == models.TimedOut:
		return later(http.StatusGatewayTimeout, create, codeNotPlaced, why.Code, why.Message)
	case job.State == models.Cancelled && create:
		return problem.New(http.StatusConflict, why.Code, "the sandbox was removed while it was being created")
	case job.State == models.Cancelled && box.Ended():
		return models.ErrNotFound
	case job.State == models.Cancelled:
		return problem.New(http.StatusConflict, why.Code, why.Message)
	}
	switch class := providers.Class(why.Code); class {
	case providers.Capacity, providers.DiskFull, providers.RateLimited, providers.Unavailable:
		return later(http.StatusServiceUnavailable, create, codeNoCapacity, why.Code, why.Message)
	case providers.Invalid:
		return problem.New(http.StatusBadRequest, why.Code, why.Message)
	case providers.NotSupported:
		return problem.New(http.StatusNotImplemented, why.Code, why.Message)
	case providers.NotFound, providers.Lost:
		if !create {
			return problem.New(http.StatusNotFound, why.Code, why.Message)
		}
	}
	if create {
		return problem.New(http.StatusInternalServerError, codeNotMade, why.Message)
	}
	return problem.New(http.StatusInternalServerError, why.Code, why.Message)
}

// later is a failure that may pass, under the name that it has where a sandbox was to be made.
func later(status int, create bool, name, code, detail string) error {
	if create {
		code = name
	}
	return problem.RetryLater(problem.New(status, code, detail), retrySeconds)
}

// unsupported refuses what was asked for and cannot be done here.
func unsupported(what string) error {
	return problem.New(http.StatusBadRequest, "unsupported_operation", what+" is not supported here")
}

// cannot answers for what E2B can do with a sandbox and this server cannot.
func (e *Server) cannot(what string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if _, err := e.live(c); err != nil {
			return err
		}
		return problem.New(http.StatusNotImplemented, "unsupported_operation", "this server does not offer "+what)
	}
}
