package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
)

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type       string       `json:"type" doc:"urn:sandyard:problem: and the code"`
	Title      string       `json:"title" doc:"The status in words"`
	Status     int          `json:"status" doc:"The HTTP status"`
	Detail     string       `json:"detail" doc:"What happened and what to do"`
	Code       string       `json:"code" doc:"Stable error code" example:"invalid_request"`
	Errors     []FieldError `json:"errors,omitempty" doc:"What is wrong with the request, field by field"`
	RequestID  string       `json:"request_id" doc:"Names the request in the server's log"`
	RetryAfter int          `json:"retry_after,omitempty" doc:"Seconds to wait before a retry; also sent as the header Retry-After"`
	Limit      string       `json:"limit,omitempty" doc:"The limit that was reached"`
	Used       *int         `json:"used,omitempty"`
	Max        *int         `json:"max,omitempty"`
	State      string       `json:"state,omitempty" doc:"The state of the ended sandbox"`
	EndReason  string       `json:"end_reason,omitempty"`
	EndedAt    *time.Time   `json:"ended_at,omitempty"`
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Location string `json:"location" doc:"Such as body.timeout_seconds or query.wait"`
	Message  string `json:"message"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus makes huma answer with the problem's status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes huma name the media type of RFC 9457.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func (p *Problem) setHeaders(set func(name, value string)) {
	if p.RetryAfter > 0 {
		set(fiber.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
	}
}

// set is c.Set for what is not Fiber's.
func set(c *fiber.Ctx) func(name, value string) {
	return func(name, value string) { c.Set(name, value) }
}

func newProblem(status int, code, detail string) *Problem {
	return &Problem{Type: "urn:sandyard:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func invalidAt(location, message string) *Problem {
	p := newProblem(fiber.StatusUnprocessableEntity, "invalid_request", location+" "+message)
	p.Errors = []FieldError{{location, message}}
	return p
}

func unauthorized(missing bool) *Problem {
	detail := "the API key is unknown or revoked; ask your operator for a valid one"
	if missing {
		detail = "no API key; send one as Authorization: Bearer sy_… or as X-API-Key"
	}
	return newProblem(fiber.StatusUnauthorized, "unauthorized", detail)
}

func forbidden(scope string) *Problem {
	return newProblem(fiber.StatusForbidden, "scope_missing", "this API key lacks the scope "+scope+"; use one that has it")
}

// problemOf is the one place where errors become answers. What it does not know is nobody's business outside.
func (s *Server) problemOf(err error) *Problem {
	var (
		problem *Problem
		ended   *models.EndedError
		limit   *models.LimitError
		invalid *jobs.InvalidError
		route   *fiber.Error
		inside  *providers.Error
	)
	switch {
	case errors.As(err, &problem):
		known := *problem
		return &known
	case errors.As(err, &invalid):
		return invalidAt(location(invalid.Field), invalid.Message)
	case errors.As(err, &ended):
		return endedProblem(ended)
	case errors.As(err, &limit):
		return limitProblem(limit)
	case errors.As(err, &route):
		return s.routeProblem(route)
	case errors.As(err, &inside):
		return insideProblem(inside)
	case errors.Is(err, models.ErrNotFound):
		return newProblem(fiber.StatusNotFound, "not_found", "there is no such sandbox, job, template or schedule; check the id and the tenant of this API key")
	case errors.Is(err, models.ErrExists):
		return newProblem(fiber.StatusConflict, "name_taken", "a template of this name exists; change it with PUT or choose another name")
	case errors.Is(err, models.ErrScheduleExists):
		return newProblem(fiber.StatusConflict, "name_taken", "a schedule of this name exists; change it with PATCH or choose another name")
	case errors.Is(err, models.ErrStale):
		return retryLater(newProblem(fiber.StatusConflict, "changed_meanwhile", "concurrent requests keep changing this object; try again"), 1)
	case errors.Is(err, models.ErrDeclared):
		return newProblem(fiber.StatusConflict, "template_declared",
			"the server's configuration declares this template; remove it from SANDBOX_TEMPLATES first, or change it with PUT")
	case errors.Is(err, models.ErrTooMuch):
		return newProblem(fiber.StatusUnprocessableEntity, "question_too_large",
			"the query takes the database too long; request a shorter time range or fewer groups")
	case errors.Is(err, models.ErrKeyReused):
		return newProblem(fiber.StatusUnprocessableEntity, "idempotency_key_reused",
			"this Idempotency-Key was used for a different request; use a new key for a new request")
	case errors.Is(err, models.ErrNotTerminal):
		return newProblem(fiber.StatusConflict, "job_not_ended", "the job has not ended; wait until it ends or cancel it first")
	case errors.Is(err, models.ErrUncertain):
		return retryLater(newProblem(fiber.StatusServiceUnavailable, "outcome_unknown",
			"the database connection broke, and it is unknown whether this request was accepted; send it again with the same Idempotency-Key, "+
				"which prevents a second run; without a key, check first whether it was done"), 2)
	case models.IsUnavailable(err):
		return retryLater(newProblem(fiber.StatusServiceUnavailable, "database_unavailable",
			"the database does not answer; nothing was accepted; try again"), 2)
	}
	return newProblem(fiber.StatusInternalServerError, "internal_error",
		"an internal error occurred; give your operator the request_id, which names the cause in the server's log")
}

func retryLater(p *Problem, seconds int) *Problem {
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
	p := newProblem(fiber.StatusGone, "sandbox_ended",
		fmt.Sprintf("sandbox %s is %s and accepts no more jobs; create another one", e.Sandbox, e.State))
	p.State, p.EndReason, p.EndedAt = string(e.State), e.Reason, e.EndedAt
	return p
}

func limitProblem(e *models.LimitError) *Problem {
	p := newProblem(fiber.StatusTooManyRequests, "limit_reached",
		fmt.Sprintf("the limit %s is reached: %d of %d in use; wait until some end, delete some or ask your operator to raise it", e.Limit, e.Used, e.Max))
	p.Limit, p.Used, p.Max = e.Limit, &e.Used, &e.Max
	return retryLater(p, 5)
}

// routeProblem speaks for Fiber, which knows only a status.
func (s *Server) routeProblem(e *fiber.Error) *Problem {
	switch e.Code {
	case fiber.StatusNotFound:
		return newProblem(e.Code, "route_not_found", "there is no route at this path; see /docs for all routes")
	case fiber.StatusMethodNotAllowed:
		return newProblem(e.Code, "method_not_allowed", "this path does not support the method; use one of those in the header Allow")
	case fiber.StatusRequestEntityTooLarge:
		p := newProblem(e.Code, "body_too_large", fmt.Sprintf("the body is larger than %d bytes (base64 adds one third); "+
			"upload large files with PUT /v1/sandboxes/{id}/files/raw, which has no such limit", s.maxBody))
		p.Limit, p.Max = "max_body_bytes", &s.maxBody
		return p
	case fiber.StatusRequestHeaderFieldsTooLarge:
		return newProblem(e.Code, "headers_too_large", "the request's path and headers are larger than 16 KiB; shorten them")
	case fiber.StatusRequestTimeout:
		return newProblem(e.Code, "request_timeout", "the request did not arrive within a minute; send it again")
	}
	return newProblem(fiber.StatusBadRequest, "malformed_request", "this is not a well-formed HTTP request; correct it and send it again")
}

// report names the problem for the log and the client, and keeps for the log what the client must not see.
func (s *Server) report(ctx context.Context, r *request, err error) *Problem {
	p := s.problemOf(err)
	p.clip()
	p.RequestID, r.problem = r.id, p
	if p.Status >= fiber.StatusInternalServerError && p.Status != fiber.StatusInsufficientStorage { // a full sandbox is its owner's
		s.log.ErrorContext(ctx, "request failed", "request_id", r.id, "code", p.Code, "error", err)
	}
	return p
}

// writeError answers with the problem that err is. Fiber calls it directly for what never became a request.
func (s *Server) writeError(c *fiber.Ctx, err error) error {
	r := requestOf(c.UserContext())
	unread := r.id == "" // what was sent was not read to its end, and the connection closes
	if unread {
		r.id = uuid.NewString()
		c.Set(fiber.HeaderXRequestID, r.id)
	}
	p := s.report(c.UserContext(), r, err)
	p.setHeaders(set(c))
	if p.Status == fiber.StatusRequestEntityTooLarge || unread && p.Status != fiber.StatusRequestTimeout {
		gateway.LingerAfter(c.Context().Conn())
	}
	return c.Status(p.Status).JSON(p, p.ContentType(""))
}

// namedProblem turns what huma has found wrong into a Problem.
func (s *Server) namedProblem(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	return s.report(ctx.Context(), requestOf(ctx.Context()), humaProblem(m)), nil
}

func humaProblem(m *huma.ErrorModel) error {
	switch {
	case m.Status == fiber.StatusUnsupportedMediaType:
		return newProblem(m.Status, "unsupported_media_type", "the body must be JSON; send Content-Type: application/json")
	case m.Status >= fiber.StatusInternalServerError:
		return errors.New(m.Detail)
	case len(m.Errors) == 0:
		return newProblem(m.Status, "body_missing", "this request needs a JSON object as its body")
	}
	if slices.ContainsFunc(m.Errors, func(e *huma.ErrorDetail) bool { return foreignID.MatchString(e.Location) }) {
		return models.ErrNotFound
	}
	p := newProblem(fiber.StatusUnprocessableEntity, "invalid_request", "")
	var parts []string
	for _, e := range m.Errors[:min(len(m.Errors), maxErrors)] {
		p.Errors = append(p.Errors, FieldError{e.Location, e.Message})
		parts = append(parts, strings.TrimSpace(clipped(e.Location, maxErrorLocation)+" "+clipped(e.Message, maxErrorMessage)))
	}
	if more := len(m.Errors) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more errors", more))
	}
	p.Detail = "the request is not valid: " + strings.Join(parts, "; ")
	return p
}
