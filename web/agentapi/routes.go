package agentapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/middleware"
)

// route is one row of the contract.
type route struct {
	method, path string // parameters are written :name
	id, summary  string
	in, out      reflect.Type // in is nil where there is no body
	handle       fiber.Handler
}

func (s *Server) routes() []route {
	return []route{
		{http.MethodPost, loginPath, "login", "Log in with username and password, as query parameters or a form", nil, reflect.TypeFor[token](), s.login},
		post("/create", "create", "Create a sandbox", s.create, data[created]()),
		on(http.MethodGet, "/status", "status", "Say how a sandbox stands", s.status, data[status]()),
		on(http.MethodGet, "/info", "info", "Describe a sandbox", s.info, data[info]()),
		on(http.MethodGet, "/urls", "urls", "Return the URLs of the template's MCP server and editor", s.urls, data[urls]()),
		post("/run-cmd", "run-cmd", "Run a shell command", s.run, data[ran]()),
		post("/run-command", "run-command", "The same as run-cmd", s.run, data[ran]()),
		post("/write-file", "write-file", "Replace a file; missing directories are created", s.write, data[done]()),
		post("/read-file", "read-file", "Read a file of UTF-8 text", s.read, data[file]()),
		post("/expose-port", "expose-port", "Return the public URL of a port", s.expose, data[exposed]()),
		post("/schedule-timeout", "schedule-timeout", "Let a sandbox end so many seconds from now", s.timeout, data[done]()),
		post("/timeout", "timeout", "The same as schedule-timeout", s.timeout, data[done]()),
		{http.MethodPost, base + "/:id/pause", "pause", "Pause a sandbox; any command resumes it", nil, data[done](), s.pause},
		on(http.MethodDelete, "", "delete", "Delete a sandbox", s.remove, data[done]()),
	}
}

func data[T any]() reflect.Type { return reflect.TypeFor[envelope[T]]() }

// post is a route that takes a body.
func post[T any](path, id, summary string, do func(context.Context, *T) (any, error), out reflect.Type) route {
	return route{http.MethodPost, base + path, id, summary, reflect.TypeFor[T](), out, func(c *fiber.Ctx) error {
		var in T
		if err := middleware.Decode(c.Request().Body(), &in); err != nil {
			return err
		}
		return answer(c)(do(c.UserContext(), &in))
	}}
}

// on is a route on the sandbox that its path names.
func on(method, path, id, summary string, do func(ctx context.Context, id string) (any, error), out reflect.Type) route {
	return route{method, base + "/:id" + path, id, summary, nil, out, func(c *fiber.Ctx) error {
		return answer(c)(do(c.UserContext(), models.IDOf(prefix, c.Params("id"))))
	}}
}

func answer(c *fiber.Ctx) func(out any, err error) error {
	return func(out any, err error) error {
		if err != nil {
			return err
		}
		return c.JSON(wrap(out))
	}
}

func wrap(data any) envelope[any] { return envelope[any]{http.StatusOK, "success", data} }

// Document describes the contract.
func (s *Server) Document(version string) *huma.OpenAPI {
	d := calls.Document{Title: "Agent API", Version: version, Failure: reflect.TypeFor[refusal](), Description: "An agent platform's sandbox API, over durable " +
		"jobs. Log in first, and send the token as Authorization: Bearer TOKEN. A sandbox_id is a UUID."}
	for _, r := range s.routes() {
		d.Add(r.method, r.path, r.id, r.summary, r.in, r.out)
	}
	return d.OpenAPI()
}
