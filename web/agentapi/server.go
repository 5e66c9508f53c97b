// Package agentapi answers the clients of an agent platform's sandbox API: a login, and eleven endpoints below
// /agent/sandboxes/sandboxes whose answers have an envelope. docs/agent-api.md has the contract, and what is different
// here.
package agentapi

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/auth"
	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Config is what a server stands on.
type Config struct {
	Stack *middleware.Stack
	Calls *calls.Calls
	// MCPPort and VSCodePort are the tools' ports of templates that list such a port and do not say whose it is.
	MCPPort, VSCodePort int
}

// Server holds the routes.
type Server struct {
	mw    *middleware.Stack
	calls *calls.Calls
	tools jobs.Foreign
}

// New returns a server.
func New(c Config) *Server {
	return &Server{c.Stack, c.Calls, jobs.Foreign{MCPPort: c.MCPPort, VSCodePort: c.VSCodePort}}
}

const (
	base      = "/agent/sandboxes/sandboxes"
	loginPath = "/api/v1/auth/login/swagger"
	// prefix is that of ids of sandboxes, which this contract shows as UUIDs.
	prefix = "sb"
	// badToken is the text of this contract for a request without a valid token.
	badToken = "Token 无效"
)

// AddRoutes adds the routes.
func (s *Server) AddRoutes(app fiber.Router) {
	for _, r := range s.routes() {
		admit := s.token
		if r.Anybody {
			admit = middleware.LoginBody
		}
		app.Add(r.Method, r.Path, contract.Enter(s.mw, admit), s.mw.TakeBody, r.Handle)
	}
}

func (s *Server) token(c *fiber.Ctx) error {
	scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="sandyard"`)
	return s.mw.AdmitUser(c, strings.TrimSpace(token))
}

// login takes name and password from the query, a form or a JSON object.
func (s *Server) login(c *fiber.Ctx) error {
	name, password := c.Query("username"), c.Query("password")
	body := c.Request().Body()
	switch {
	case len(body) == 0:
	case strings.HasPrefix(c.Get(fiber.HeaderContentType), fiber.MIMEApplicationForm):
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return problem.Invalid("body", "is not a well-formed form; send username and password as its fields")
		}
		name, password = cmp.Or(form.Get("username"), name), cmp.Or(form.Get("password"), password)
	default:
		var in struct{ Username, Password string }
		if err := middleware.Decode(body, &in); err != nil {
			return err
		}
		name, password = cmp.Or(in.Username, name), cmp.Or(in.Password, password)
	}
	if name == "" || password == "" {
		return problem.Invalid("username and password", "are missing; send both as query parameters or as a form")
	}
	login, err := s.mw.Login(c.UserContext(), name, password, auth.TokenLife)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(token{login.Access, "bearer"})
}

func (s *Server) create(ctx context.Context, in *createRequest) (any, error) {
	box, err := s.calls.Create(
		ctx,
		in.UserID,
		jobs.CreateSandbox{Template: cmp.Or(in.SandboxTemplateID, in.TemplateID), Foreign: s.tools},
	)
	if err != nil {
		return nil, calls.Rename(err, "template", "sandbox_template_id")
	}
	mcp, vscode := s.calls.ToolURLs(box)
	return created{true, models.UUIDOf(prefix, box.ID), box.ID, string(box.State), mcp, vscode}, nil
}

func (s *Server) status(ctx context.Context, id string) (any, error) {
	box, err := s.calls.Sandbox(ctx, id)
	return status{true, models.UUIDOf(prefix, box.ID), string(box.State), box.ID, "Status retrieved successfully"}, err
}

func (s *Server) info(ctx context.Context, id string) (any, error) {
	box, err := s.calls.Sandbox(ctx, id)
	return info{
		models.UUIDOf(prefix, box.ID), box.ID, box.Labels[calls.UserLabel], box.Template,
		box.CreatedAt.UTC().Format(time.RFC3339), string(box.State),
	}, err
}

func (s *Server) urls(ctx context.Context, id string) (any, error) {
	box, err := s.calls.Sandbox(ctx, id)
	mcp, vscode := s.calls.ToolURLs(box)
	return urls{true, models.UUIDOf(prefix, box.ID), mcp, vscode}, err
}

func (s *Server) run(ctx context.Context, in *runRequest) (any, error) {
	out, err := s.calls.Run(ctx, models.IDOf(prefix, in.SandboxID), in.Command, in.Background)
	switch {
	case in.Background:
		return ran{true, "", "Command started in the background"}, err
	case out.ExitCode != 0:
		return ran{false, out.Text(), fmt.Sprintf("Command exited with code %d", out.ExitCode)}, err
	}
	return ran{true, out.Text(), "Command executed successfully"}, err
}

func (s *Server) write(ctx context.Context, in *writeRequest) (any, error) {
	path := cmp.Or(in.FilePath, in.Path)
	if path == "" {
		return nil, problem.Invalid("body.file_path", "is missing")
	}
	err := s.calls.Write(ctx, models.IDOf(prefix, in.SandboxID), path, in.Content)
	return done{true, "File written to " + path}, calls.Rename(err, "path", "file_path")
}

func (s *Server) read(ctx context.Context, in *readRequest) (any, error) {
	path := cmp.Or(in.FilePath, in.Path)
	if path == "" {
		return nil, problem.Invalid("body.file_path", "is missing")
	}
	content, err := s.calls.Read(ctx, models.IDOf(prefix, in.SandboxID), path)
	return file{true, content}, calls.Rename(err, "path", "file_path")
}

func (s *Server) expose(ctx context.Context, in *portRequest) (any, error) {
	url, err := s.calls.Expose(ctx, models.IDOf(prefix, in.SandboxID), in.Port)
	return exposed{true, url, fmt.Sprintf("Port %d exposed successfully", in.Port)}, err
}

func (s *Server) timeout(ctx context.Context, in *timeoutRequest) (any, error) {
	field, seconds := "timeout_seconds", in.TimeoutSeconds
	if seconds == nil && in.Timeout != nil {
		field, seconds = "timeout", in.Timeout
	}
	if seconds == nil {
		return nil, problem.Invalid("body.timeout_seconds", "is missing")
	}
	err := s.calls.SetTimeout(ctx, models.IDOf(prefix, in.SandboxID), field, *seconds)
	return done{true, fmt.Sprintf("The sandbox ends in %g seconds", *seconds)}, err
}

func (s *Server) pause(c *fiber.Ctx) error {
	reason := c.Query("reason", "manual")
	if err := s.calls.Pause(c.UserContext(), models.IDOf(prefix, c.Params("id"))); err != nil {
		return err
	}
	return c.JSON(wrap(done{true, fmt.Sprintf("Sandbox paused successfully (reason: %s)", reason)}))
}

func (s *Server) remove(ctx context.Context, id string) (any, error) {
	return done{true, "Sandbox deleted successfully"}, s.calls.Delete(ctx, id)
}
