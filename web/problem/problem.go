// Package problem is the answer to every request that fails: a problem document of RFC 9457, and the one map from
// errors to statuses and codes. It knows nothing of who asked; every contract over HTTP writes these documents or
// translates them.
package problem

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
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
	Used       *float64     `json:"used,omitempty" doc:"How much of the limit is in use"`
	Max        *float64     `json:"max,omitempty" doc:"The limit"`
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

// SetHeaders sets the headers that go with the problem: Retry-After, where it says when to try again.
func (p *Problem) SetHeaders(set func(name, value string)) {
	if p.RetryAfter > 0 {
		set(fiber.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
	}
}

// New returns a problem with an HTTP status, a stable code, and a detail that says what to do.
func New(status int, code, detail string) *Problem {
	return &Problem{
		Type:   "urn:sandyard:problem:" + code,
		Title:  http.StatusText(status),
		Status: status,
		Code:   code,
		Detail: detail,
	}
}

// Invalid is the 422 of one thing that is wrong with a request. Location is such as body.timeout_seconds or query.wait.
func Invalid(location, message string) *Problem {
	p := New(fiber.StatusUnprocessableEntity, "invalid_request", location+" "+message)
	p.Errors = []FieldError{{location, message}}
	return p
}

// Unauthorized is the 401 of a request whose API key is missing, unknown or revoked.
func Unauthorized(missing bool) *Problem {
	detail := "the API key is unknown or revoked; ask your operator for a valid one"
	if missing {
		detail = "no API key; send one as Authorization: Bearer sy_… or as X-API-Key"
	}
	return New(fiber.StatusUnauthorized, "unauthorized", detail)
}

// Forbidden is the 403 of an API key or a login that lacks a scope.
func Forbidden(scope string) *Problem {
	return New(
		fiber.StatusForbidden,
		"scope_missing",
		"the API key or login lacks the scope "+scope+"; use one that has it",
	)
}
