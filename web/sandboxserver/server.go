// Package sandboxserver answers the clients of the sandbox server, a small HTTP API in front of a cloud of sandboxes:
// one client class with eight methods, whose calls return plain values. docs/sandbox-server.md has the contract, and
// what is different here.
package sandboxserver

import (
	"context"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Server holds the routes.
type Server struct {
	mw    *middleware.Stack
	calls *calls.Calls
}

// New returns a server whose calls are c.
func New(mw *middleware.Stack, c *calls.Calls) *Server { return &Server{mw, c} }

// base is where the routes begin.
const base = "/sandboxes"

// AddRoutes adds the routes for clients that have an API key. They come before those of E2B, whose paths begin alike:
// of the one that both have, DELETE /sandboxes/{id}, the way in which the key comes decides.
func (s *Server) AddRoutes(app fiber.Router) {
	s.add(app, s.key)
	app.Delete(base+"/:id", func(c *fiber.Ctx) error {
		if !basic(c) {
			return c.Next()
		}
		middleware.RequestOf(c.UserContext()).Act(c.Method(), c.Route().Path)
		err := s.key(c)
		if err == nil {
			err = s.remove(c)
		}
		if err != nil {
			return contract.Refuse(s.mw, c, err)
		}
		return nil
	})
}

// AddOpenRoutes adds the routes for clients without a key: they work for one tenant.
func (s *Server) AddOpenRoutes(app fiber.Router, tenantID string) {
	open := func(c *fiber.Ctx) error {
		r := middleware.RequestOf(c.UserContext())
		r.Tenant, r.Key, r.Scopes = tenantID, openActor, []string{models.ScopeSandboxes}
		return nil
	}
	s.add(app, open)
	app.Delete(base+"/:id", contract.Enter(s.mw, open), s.mw.TakeBody, s.remove)
}

// openActor is who acts where no key came along.
const openActor = "sandbox-server-listener"

// add adds all routes but that of E2B's name.
func (s *Server) add(app fiber.Router, admit fiber.Handler) {
	for _, r := range s.routes() {
		if r.Method != http.MethodDelete {
			app.Add(r.Method, r.Path, contract.Enter(s.mw, admit), s.mw.TakeBody, r.Handle)
		}
	}
}

// key admits requests by their API key: as the password of the server's URL, or as on other routes.
func (s *Server) key(c *fiber.Ctx) error {
	plain := middleware.Bearer(c)
	if basic(c) {
		plain = middleware.BasicPassword(c.Get(fiber.HeaderAuthorization))
	}
	c.Set(fiber.HeaderWWWAuthenticate, `Basic realm="sandyard: any user, an API key as the password", charset="UTF-8"`)
	return s.mw.Admit(c, plain, models.ScopeSandboxes)
}

func basic(c *fiber.Ctx) bool {
	scheme, _, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	return strings.EqualFold(scheme, "Basic")
}

func (s *Server) create(ctx context.Context, in *createRequest) (any, error) {
	box, err := s.calls.Create(ctx, in.UserID, jobs.CreateSandbox{Template: in.TemplateID})
	return created{box.ID}, calls.Rename(err, "template", "template_id")
}

func (s *Server) connect(ctx context.Context, in *sandboxRequest) (any, error) {
	return success, s.calls.Connect(ctx, in.SandboxID)
}

func (s *Server) run(ctx context.Context, in *runRequest) (any, error) {
	out, err := s.calls.Run(ctx, in.SandboxID, in.Command, in.Background)
	return output{out.Text()}, err
}

func (s *Server) expose(ctx context.Context, in *portRequest) (any, error) {
	url, err := s.calls.Expose(ctx, in.SandboxID, in.Port)
	return exposed{url}, err
}

func (s *Server) write(ctx context.Context, in *writeRequest) (any, error) {
	return success, s.calls.Write(ctx, in.SandboxID, in.Path, in.Content)
}

func (s *Server) read(ctx context.Context, in *readRequest) (any, error) {
	content, err := s.calls.Read(ctx, in.SandboxID, in.Path)
	return file{content}, err
}

func (s *Server) timeout(ctx context.Context, in *timeoutRequest) (any, error) {
	return success, s.calls.SetTimeout(ctx, in.SandboxID, "timeout", in.Timeout)
}

func (s *Server) status(c *fiber.Ctx) error {
	box, err := s.calls.Sandbox(c.UserContext(), c.Params("id"))
	if err != nil {
		return err
	}
	return c.JSON(status{true, box.ID, string(box.State), box.ID, "the sandbox is " + string(box.State)})
}

// remove succeeds also where there is no such sandbox: that is what was wanted.
func (s *Server) remove(c *fiber.Ctx) error {
	err := s.calls.Delete(c.UserContext(), c.Params("id"))
	if p := problem.Of(err, s.mw.MaxBody); err != nil && p.Status != http.StatusNotFound && p.Status != http.StatusGone {
		return err
	}
	return c.JSON(success)
}

// detail is a text, or for fields that are wrong a list, as clients of FastAPI know it.
func detail(p *problem.Problem) any {
	if len(p.Errors) == 0 {
		return p.Detail
	}
	var list []fieldError
	for _, e := range p.Errors {
		list = append(list, fieldError{strings.Split(e.Location, "."), e.Message, "value_error"})
	}
	return list
}
