package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"sandyard/models"
	"sandyard/web/problem"
)

// Request is what is known of a request beside its content.
type Request struct {
	ID      string
	Client  string // the address that it came from
	Method  string
	Path    string
	Action  string // method and route
	Target  string // the id or name of what it is about, where the path does not have it
	Submits bool   // it changes nothing but by the jobs that it submits
	Changes bool   // it changes something although its method does not say so
	Tenant  string
	Key     string           // the id of its API key, or of the login
	User    string           // the id of the user whose key or login it is; empty = it is nobody's
	Scopes  []string         // of that key
	Digest  []byte           // of method, path and body, where an Idempotency-Key came along
	Problem *problem.Problem // what it was answered with, if that was an error
	Held    Hold             // memory that its body and its answer take

	entry *models.AuditEntry
}

// LoggedIn says whether the request came with the token of a login, and not with an API key.
func (r *Request) LoggedIn() bool { return models.IsLogin(r.Key) }

// Actor is who acts: the user who has logged in, or else the API key.
func (r *Request) Actor() string {
	if r.LoggedIn() {
		return r.User
	}
	return r.Key
}

type requestKey struct{}

// With returns a context whose request is r.
func With(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf returns the request that a handler works for.
func RequestOf(ctx context.Context) *Request {
	r, ok := ctx.Value(requestKey{}).(*Request)
	if !ok {
		return &Request{}
	}
	return r
}

// Serve surrounds every request: it gives it an id, turns errors and panics into problem documents and writes one log
// line, in which neither bodies nor keys appear.
func (s *Stack) Serve(c *fiber.Ctx) error {
	began := time.Now()
	r := &Request{ID: requestID(c.Get(fiber.HeaderXRequestID)), Client: c.IP(), Method: c.Method(), Path: c.Path()}
	// Not Fiber's own context, which belongs to the connection and races with Shutdown.
	c.SetUserContext(With(context.Background(), r))
	c.Set(fiber.HeaderXRequestID, r.ID)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderContentSecurityPolicy, "frame-ancestors 'none'") // pages that load anything say more
	defer func() { r.Held.Release() }()
	if err := s.next(c); err != nil {
		if err := s.WriteError(c, err); err != nil {
			return err
		}
	}
	if c.Context().Hijacked() {
		return nil // the bridge goes on with it
	}
	if r.Problem != nil {
		c.Status(r.Problem.Status) // huma may have chosen another one before the problem was named
		r.Problem.SetHeaders(Setter(c))
	}
	LeaveBody(c)
	s.holdAnswer(c, r)
	s.logRequest(c, r, time.Since(began))
	if r.Action == "" {
		r.Act(c.Method(), c.Route().Path)
	}
	s.EndAudit(r, c.Response().StatusCode())
	return nil
}

func (s *Stack) next(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Panicked(p)
		}
	}()
	if err := checkFraming(c); err != nil {
		return err
	}
	if err := checkURL(c); err != nil {
		return err
	}
	return c.Next()
}

// Then answers with a bare status when do has succeeded.
func Then(status int, do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if err := do(c); err != nil {
			return err
		}
		return c.SendStatus(status)
	}
}

// Panicked is called while the stack of the panic still stands.
func Panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

func (s *Stack) logRequest(c *fiber.Ctx, r *Request, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", c.Method()), slog.String("route", c.Route().Path),
		slog.Int("status", c.Response().StatusCode()), slog.Duration("duration", took),
		slog.String("request_id", r.ID), slog.String("tenant", r.Tenant), slog.String("key", r.Key),
		slog.String("client", r.Client),
	}
	if r.User != "" {
		attrs = append(attrs, slog.String("user", r.User))
	}
	if r.Problem != nil {
		attrs = append(attrs, slog.String("code", r.Problem.Code))
	}
	s.log.LogAttrs(c.UserContext(), slog.LevelInfo, "request", attrs...)
}

// requestID takes the caller's id over if it is fit for a header and a log.
func requestID(given string) string {
	if given == "" || len(given) > 128 {
		return uuid.NewString()
	}
	for i := range len(given) {
		if given[i] <= ' ' || given[i] > '~' {
			return uuid.NewString()
		}
	}
	return given
}

// checkURL refuses text that PostgreSQL cannot take.
func checkURL(c *fiber.Ctx) error {
	bad := !Storable(c.Request().RequestURI())
	for name, value := range c.Request().URI().QueryArgs().All() {
		bad = bad || !Storable(name) || !Storable(value)
	}
	if bad || !Storable(c.Request().URI().Path()) {
		return problem.Invalid("url", "must be UTF-8 without NUL")
	}
	return nil
}

// Storable says whether PostgreSQL can hold a text.
func Storable(b []byte) bool {
	if slices.Contains(b, 0) {
		return false
	}
	return utf8.Valid(b)
}
