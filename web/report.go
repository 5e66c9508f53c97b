package web

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"sandyard/gateway"
	"sandyard/web/problem"
)

// report names the problem for the log and the client, and keeps for the log what the client must not see.
func (s *Server) report(ctx context.Context, r *request, err error) *problem.Problem {
	p := problem.Of(err, s.maxBody)
	p.Clip()
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
	p.SetHeaders(set(c))
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
	return s.report(ctx.Context(), requestOf(ctx.Context()), problem.OfHuma(m)), nil
}

// set is c.Set for what is not Fiber's.
func set(c *fiber.Ctx) func(name, value string) {
	return func(name, value string) { c.Set(name, value) }
}
