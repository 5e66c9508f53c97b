package problem

import (
	"errors"
	"fmt"
	"math"

	"github.com/gofiber/fiber/v2"

	"sandyard/gateway"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/providers"
)

// Of is the one place where errors become answers. What it does not know is an internal error, whose text stays inside.
// Bodies are refused that are larger than maxBody bytes.
func Of(err error, maxBody int) *Problem {
	var (
		problem *Problem
		ended   *models.EndedError
		limit   *models.LimitError
		invalid *kind.InvalidError
		route   *fiber.Error
		inside  *providers.Error
	)
	switch {
	case errors.As(err, &problem):
		return new(*problem)
	case errors.As(err, &invalid):
		return Invalid(location(invalid.Field), invalid.Message)
	case errors.As(err, &ended):
		return endedProblem(ended)
	case errors.As(err, &limit):
		return Limit(limit)
	case errors.As(err, &route):
		return routeProblem(route, maxBody)
	case errors.As(err, &inside):
		return insideProblem(inside)
	case errors.Is(err, models.ErrNotFound):
		return New(
			fiber.StatusNotFound,
			"not_found",
			"there is no such sandbox, job, template or other object of this tenant; check the id or the name, and the "+
				"API key",
		)
	case errors.Is(err, models.ErrExists):
		return New(
			fiber.StatusConflict,
			"name_taken",
			"a template of this name exists; change it with PUT or choose another name",
		)
	case errors.Is(err, models.ErrScheduleExists):
		return New(
			fiber.StatusConflict,
			"name_taken",
			"a schedule of this name exists; change it with PATCH or choose another name",
		)
	case errors.Is(err, models.ErrStale):
		return RetryLater(
			New(fiber.StatusConflict, "changed_meanwhile", "concurrent requests keep changing this object; try again"),
			1,
		)
	case errors.Is(err, models.ErrDeclared):
		return New(fiber.StatusConflict, "template_declared",
			"the server's configuration declares this template; remove it from SANDBOX_TEMPLATES first, or change it with PUT")
	case errors.Is(err, models.ErrTooMuch):
		return New(fiber.StatusUnprocessableEntity, "question_too_large",
			"the query takes the database too long; request a shorter time range or fewer groups")
	case errors.Is(err, models.ErrKeyReused):
		return New(fiber.StatusUnprocessableEntity, "idempotency_key_reused",
			"this Idempotency-Key was used for a different request; use a new key for a new request")
	case errors.Is(err, models.ErrNotTerminal):
		return New(fiber.StatusConflict, "job_not_ended", "the job has not ended; wait until it ends or cancel it first")
	case errors.Is(err, pg.ErrUncertain):
		return RetryLater(New(
			fiber.StatusServiceUnavailable,
			"outcome_unknown",
			"the database connection broke, and it is unknown whether this request was accepted; send it again with the same "+
				"Idempotency-Key, which prevents a second run; without a key, check first whether it was done",
		), 2)
	case pg.IsUnavailable(err):
		return RetryLater(New(fiber.StatusServiceUnavailable, "database_unavailable",
			"the database does not answer; nothing was accepted; try again"), 2)
	}
	if p := ofAccount(err); p != nil {
		return p
	}
	return New(fiber.StatusInternalServerError, "internal_error",
		"an internal error occurred; give your operator the request_id, which names the cause in the server's log")
}

// RetryLater returns p with the number of seconds to wait before a retry.
func RetryLater(p *Problem, seconds int) *Problem {
	p.RetryAfter = seconds
	return p
}

func location(field string) string {
	if field == "Idempotency-Key" {
		return "header." + field
	}
	return "body." + field
}

func endedProblem(e *models.EndedError) *Problem {
	p := New(fiber.StatusGone, "sandbox_ended",
		fmt.Sprintf("sandbox %s is %s and accepts no more jobs; create another one", e.Sandbox, e.State))
	p.State, p.EndReason, p.EndedAt = string(e.State), e.Reason, e.EndedAt
	return p
}

// Limit is the 429 of a limit that is reached.
func Limit(e *models.LimitError) *Problem {
	advice := "wait until some end, delete some or ask your operator to raise it"
	if e.Asked > e.Max {
		advice = "this request alone exceeds the limit: ask for less, or ask your operator to raise it"
	}
	seconds := 5
	if e.RetryAfter > 0 {
		seconds = int(math.Ceil(e.RetryAfter.Seconds()))
		advice = fmt.Sprintf("try again in %d s, or ask your operator to raise it", seconds)
	}
	p := New(fiber.StatusTooManyRequests, "limit_reached", "the limit "+e.Limit+" is reached: "+e.Numbers()+"; "+advice)
	p.Limit, p.Used, p.Max = e.Limit, &e.Used, &e.Max
	return RetryLater(p, seconds)
}

// routeProblem speaks for Fiber, which knows only a status.
func routeProblem(e *fiber.Error, maxBody int) *Problem {
	switch e.Code {
	case fiber.StatusNotFound:
		return New(e.Code, "route_not_found", "there is no route at this path; see /docs for all routes")
	case fiber.StatusMethodNotAllowed:
		return New(
			e.Code,
			"method_not_allowed",
			"this path does not support the method; use one of those in the header Allow",
		)
	case fiber.StatusRequestEntityTooLarge:
		p := New(e.Code, "body_too_large", fmt.Sprintf("the body is larger than %d bytes (base64 adds one third); "+
			"upload large files with PUT /v1/sandboxes/{id}/files/raw, which has no such limit", maxBody))
		p.Limit, p.Max = "max_body_bytes", new(float64(maxBody))
		return p
	case fiber.StatusRequestHeaderFieldsTooLarge:
		return New(e.Code, "headers_too_large", "the request's path and headers are larger than 16 KiB; shorten them")
	case fiber.StatusRequestTimeout:
		return New(e.Code, "request_timeout", "the request did not arrive within a minute; send it again")
	}
	return New(
		fiber.StatusBadRequest,
		"malformed_request",
		"this is not a well-formed HTTP request; correct it and send it again",
	)
}

// insideProblem is the answer to an error of a call that is no job.
func insideProblem(e *providers.Error) *Problem {
	status, known := map[providers.Class]int{
		providers.FileNotFound: fiber.StatusNotFound, providers.NoCommand: fiber.StatusNotFound,
		providers.Paused: fiber.StatusConflict, providers.FileExists: fiber.StatusConflict,
		providers.NotAFile: fiber.StatusConflict, providers.NotADir: fiber.StatusConflict,
		providers.FileDenied: fiber.StatusForbidden, providers.NoSpace: fiber.StatusInsufficientStorage,
		providers.TooLarge:    fiber.StatusRequestEntityTooLarge,
		providers.InvalidPath: fiber.StatusUnprocessableEntity, providers.Invalid: fiber.StatusUnprocessableEntity,
		providers.BadArchive: fiber.StatusUnprocessableEntity, providers.NoDir: fiber.StatusUnprocessableEntity,
		providers.NoExec: fiber.StatusNotFound, providers.ExecEnded: fiber.StatusConflict,
		providers.NoUser:       fiber.StatusUnprocessableEntity,
		providers.TooManyExecs: fiber.StatusTooManyRequests,
		providers.Busy:         fiber.StatusServiceUnavailable, providers.NotSupported: fiber.StatusNotImplemented,
		"range_not_satisfiable": fiber.StatusRequestedRangeNotSatisfiable,
		"precondition_failed":   fiber.StatusPreconditionFailed,
		gateway.Broken:          fiber.StatusBadRequest,
	}[e.Class]
	if !known {
		status = fiber.StatusBadGateway
	}
	p := New(status, string(e.Class), e.Message)
	switch status {
	case fiber.StatusServiceUnavailable, fiber.StatusBadGateway:
		p = RetryLater(p, 1)
	}
	return p
}
