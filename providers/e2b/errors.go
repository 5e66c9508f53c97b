package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

const (
	maxErrorBody  = 64 << 10
	maxLogged     = 300 // bytes of a refusal in a log
	maxRetryAfter = time.Hour
)

// refusal is an answer of the backend that is none of envd's protocol.
type refusal struct {
	status     int
	message    string // of the backend: to be looked at, and for the log
	code       string // E2B's name of the error
	port       bool   // it is about a port on which nobody listens
	retryAfter time.Duration
}

// Error is for the log: what could be a token is not in it.
func (r *refusal) Error() string {
	return fmt.Sprintf("the backend answered %d %s: %s", r.status, r.code, redact(r.message))
}

var codes = regexp.MustCompile(`^[a-z_]{1,64}$`)

var tokens = regexp.MustCompile(`[A-Za-z0-9_\-.=+/]{16,}`)

func redact(text string) string {
	text = strings.ToValidUTF8(tokens.ReplaceAllString(text[:min(len(text), maxErrorBody)], "…"), "�")
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), maxLogged)]
}

// readRefusal reads an answer that is an error. It leaves the body to be closed.
func readRefusal(res *http.Response) *refusal {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what there is of it
	return refusalOf(res, text)
}

func refusalOf(res *http.Response, text []byte) *refusal {
	r := &refusal{status: res.StatusCode, retryAfter: retryAfter(res.Header)}
	var body struct {
		Message string          `json:"message"`
		Code    string          `json:"error_code"`
		Port    json.RawMessage `json:"port"`
	}
	if json.Unmarshal(text, &body) != nil {
		r.message = "no JSON"
		return r
	}
	r.message, r.port = body.Message, len(body.Port) > 0 && string(body.Port) != "null" && string(body.Port) != "0"
	if codes.MatchString(body.Code) {
		r.code = body.Code
	}
	return r
}

// retryAfter reads how long the backend wants to be left alone.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	sent, err := http.ParseTime(h.Get("Date")) // clocks differ
	if err != nil {
		sent = time.Now()
	}
	return max(0, min(at.Sub(sent), maxRetryAfter))
}

// says tells whether the backend's words hold all of some.
func (r *refusal) says(words ...string) bool {
	text := strings.ToLower(r.message)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func unavailable(what string, cause error) *providers.Error {
	return &providers.Error{Class: providers.Unavailable, Message: what, Err: cause}
}

// translated is the error of a call of the API.
func translated(what string, err error) error {
	var own *providers.Error
	var r *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &r):
		e := &providers.Error{Err: r}
		e.Class, e.Message = r.class(what)
		e.RetryAfter = r.retryAfter
		return e
	}
	return unavailable("E2B did not answer to "+what, quiet(err))
}

// quiet is the error of a transport without the URL that it names: a query may hold a signature.
func quiet(err error) error {
	for _, known := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New(redact(err.Error()))
}

// class is what a refusal of the API means, and what to tell a user.
func (r *refusal) class(what string) (providers.Class, string) {
	switch s := r.status; {
	case s == http.StatusUnauthorized:
		return providers.Refused, "E2B does not take the operator's key; ask your operator to check E2B_API_KEY"
	case s == http.StatusForbidden:
		return providers.Refused, "E2B does not let the operator's account " + what +
			"; ask your operator to look at the account"
	case s == http.StatusPaymentRequired, s == http.StatusTooManyRequests && r.full():
		return providers.Quota, "the E2B account has as many sandboxes as it may have; " +
			"delete some, or ask your operator for another plan"
	case s == http.StatusTooManyRequests:
		return providers.RateLimited, "E2B wants fewer calls"
	case s == http.StatusNotFound:
		return providers.NotFound, providers.ErrNotFound.Message
	case s == http.StatusConflict:
		return providers.Busy, "the sandbox's state is changing at E2B"
	case s == http.StatusBadRequest && (r.says("timeout", "greater") || r.says("instance length")):
		return providers.Invalid, "the E2B account does not let sandboxes live that long; use a shorter timeout"
	case s == http.StatusBadRequest, s == http.StatusRequestEntityTooLarge, s == http.StatusUnprocessableEntity:
		return providers.Invalid, "E2B does not accept the request to " + what + "; check template, environment and timeout"
	case s == http.StatusNotImplemented:
		return providers.NotSupported, "this E2B server cannot " + what
	case (s == http.StatusServiceUnavailable || s == http.StatusGatewayTimeout) && r.crowded():
		return providers.Capacity, "E2B has no room for the sandbox at the moment"
	case s == http.StatusRequestTimeout,
		s == http.StatusBadGateway,
		s == http.StatusServiceUnavailable,
		s == http.StatusGatewayTimeout:
		return providers.Unavailable, "E2B did not " + what + " in time"
	}
	return providers.Internal, "E2B failed to " + what
}

// full says whether it is the account that has enough, and not the moment.
func (r *refusal) full() bool {
	return r.says("maximum number", "sandboxes") || r.says("concurrent", "sandboxes") || r.says("quota")
}

func (r *refusal) crowded() bool {
	switch r.code {
	case "sandbox_capacity_unavailable", "sandbox_no_compatible_node", "sandbox_placement_timeout":
		return true
	}
	return false
}
