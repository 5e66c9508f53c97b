package web

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"sandyard/web/problem"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
)

// request is what is known of a request beside its content.
type request struct {
	id      string
	tenant  string
	key     string           // the id of its API key: the actor
	scopes  []string         // of that key
	digest  []byte           // of method, path and body, where an Idempotency-Key came along
	problem *problem.Problem // what it was answered with, if that was an error
	held    hold             // memory that its body and its answer take
}

type requestKey struct{}

// requestOf returns the request that a handler works for.
func requestOf(ctx context.Context) *request {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return &request{}
	}
	return r
}

// serve surrounds every request: it gives it an id, turns errors and panics into problem documents and writes one log
// line, in which neither bodies nor keys appear.
func (s *Server) serve(c *fiber.Ctx) error {
	began := time.Now()
	r := &request{id: requestID(c.Get(fiber.HeaderXRequestID))}
	// Not Fiber's own context, which belongs to the connection and races with Shutdown.
	c.SetUserContext(context.WithValue(context.Background(), requestKey{}, r))
	c.Set(fiber.HeaderXRequestID, r.id)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderContentSecurityPolicy, "frame-ancestors 'none'") // pages that load anything say more
	defer func() { r.held.release() }()
	if err := s.next(c); err != nil {
		if err := s.writeError(c, err); err != nil {
			return err
		}
	}
	if c.Context().Hijacked() {
		return nil // the bridge goes on with it
	}
	if r.problem != nil {
		c.Status(r.problem.Status) // huma may have chosen another one before the problem was named
		r.problem.SetHeaders(set(c))
	}
	leaveBody(c)
	s.holdAnswer(c, r)
	s.logRequest(c, r, time.Since(began))
	return nil
}

func (s *Server) next(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
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

// panicked is called while the stack of the panic still stands.
func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

func (s *Server) logRequest(c *fiber.Ctx, r *request, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", c.Method()), slog.String("route", c.Route().Path),
		slog.Int("status", c.Response().StatusCode()), slog.Duration("duration", took),
		slog.String("request_id", r.id), slog.String("tenant", r.tenant), slog.String("key", r.key), slog.String("client", c.IP()),
	}
	if r.problem != nil {
		attrs = append(attrs, slog.String("code", r.problem.Code))
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
	bad := !storable(c.Request().RequestURI())
	for name, value := range c.Request().URI().QueryArgs().All() {
		bad = bad || !storable(name) || !storable(value)
	}
	if bad || !storable(c.Request().URI().Path()) {
		return problem.Invalid("url", "must be UTF-8 without NUL")
	}
	return nil
}

func storable(b []byte) bool {
	for _, x := range b {
		if x == 0 {
			return false
		}
	}
	return utf8.Valid(b)
}
