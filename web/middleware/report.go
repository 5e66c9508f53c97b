package middleware

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"sandyard/duplex"
	"sandyard/web/problem"
)

// Report names the problem for the log and the client, and keeps for the log what the client must not see.
func (s *Stack) Report(ctx context.Context, r *Request, err error) *problem.Problem {
	p := problem.Of(err, s.MaxBody)
	p.Clip()
	p.RequestID, r.Problem = r.ID, p
	if p.Status >= fiber.StatusInternalServerError &&
		p.Status != fiber.StatusInsufficientStorage { // a full sandbox is its owner's
		s.log.ErrorContext(ctx, "request failed", "request_id", r.ID, "code", p.Code, "error", err)
	}
	return p
}

// WriteError answers with the problem that err is. Fiber calls it directly for what never became a request.
func (s *Stack) WriteError(c *fiber.Ctx, err error) error {
	r := RequestOf(c.UserContext())
	unread := r.ID == "" // what was sent was not read to its end, and the connection closes
	if unread {
		r.ID = uuid.NewString()
		c.Set(fiber.HeaderXRequestID, r.ID)
	}
	p := s.Report(c.UserContext(), r, err)
	p.SetHeaders(Setter(c))
	if p.Status == fiber.StatusRequestEntityTooLarge || unread && p.Status != fiber.StatusRequestTimeout {
		duplex.LingerAfter(c.Context().Conn())
	}
	return c.Status(p.Status).JSON(p, p.ContentType(""))
}

// NamedProblem turns what huma has found wrong into a Problem.
func (s *Stack) NamedProblem(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	return s.Report(ctx.Context(), RequestOf(ctx.Context()), problem.OfHuma(m)), nil
}

// Setter is c.Set for what is not Fiber's.
func Setter(c *fiber.Ctx) func(name, value string) {
	return func(name, value string) { c.Set(name, value) }
}
