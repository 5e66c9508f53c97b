package agentapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/problem"
)

//nolint:gochecknoglobals // a constant
var contract = calls.Contract{
	Title: "Agent API", Failure: reflect.TypeFor[refusal](),
	Description: "An agent platform's sandbox API, over durable jobs. Log in first, and send the token with every " +
		"request. A sandbox_id is a UUID.",
	Security: map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "The access_token of a login"},
	},
	Body: refuse,
}

// refuse writes an error in the envelope.
func refuse(p *problem.Problem) any {
	text := p.Detail
	if p.Code == "token_invalid" {
		text = badToken + ": " + text
	}
	return refusal{p.Status, text, nil, p.Code, p.RequestID}
}

func (s *Server) routes() []calls.Route {
	return []calls.Route{
		{
			Method: http.MethodPost, Path: loginPath, ID: "login",
			Summary: "Log in with username and password, as query parameters, a form or JSON",
			Query:   []string{"username", "password"}, Anybody: true, Out: reflect.TypeFor[token](), Handle: s.login,
		},
		post("/create", "create", "Create a sandbox", s.create, data[created]()),
		on(http.MethodGet, "/status", "status", "Return the state of a sandbox", s.status, data[status]()),
		on(http.MethodGet, "/info", "info", "Describe a sandbox", s.info, data[info]()),
		on(http.MethodGet, "/urls", "urls", "Return the URLs of the template's MCP server and editor", s.urls, data[urls]()),
		post("/run-cmd", "run-cmd", "Run a shell command", s.run, data[ran]()),
		post("/run-command", "run-command", "The same as run-cmd", s.run, data[ran]()),
		post("/write-file", "write-file", "Replace a file; missing directories are created", s.write, data[done]()),
		post("/read-file", "read-file", "Read a file of UTF-8 text", s.read, data[file]()),
		post("/expose-port", "expose-port", "Return the public URL of a port", s.expose, data[exposed]()),
		post("/schedule-timeout", "schedule-timeout", "Set the timeout of a sandbox, in seconds from "+
			"now", s.timeout, data[done]()),
		post("/timeout", "timeout", "The same as schedule-timeout", s.timeout, data[done]()),
		{
			Method: http.MethodPost, Path: base + "/:id/pause", ID: "pause", Summary: "Pause a sandbox; any command resumes it",
			Query: []string{"reason"}, Out: data[done](), Handle: s.pause,
		},
		on(http.MethodDelete, "", "delete", "Delete a sandbox", s.remove, data[done]()),
	}
}

func data[T any]() reflect.Type { return reflect.TypeFor[envelope[T]]() }

// post is a route that takes a body, whose answer has the envelope.
func post[T any](path, id, summary string, do func(context.Context, *T) (any, error), out reflect.Type) calls.Route {
	return calls.Post(base+path, id, summary, func(ctx context.Context, in *T) (any, error) {
		out, err := do(ctx, in)
		return wrap(out), err
	}, out)
}

// on is a route on the sandbox that its path names.
func on(
	method, path, id, summary string,
	do func(ctx context.Context, id string) (any, error),
	out reflect.Type,
) calls.Route {
	return calls.Route{
		Method:  method,
		Path:    base + "/:id" + path,
		ID:      id,
		Summary: summary,
		Out:     out,
		Handle: func(c *fiber.Ctx) error {
			out, err := do(c.UserContext(), models.IDOf(prefix, c.Params("id")))
			if err != nil {
				return err
			}
			return c.JSON(wrap(out))
		},
	}
}

func wrap(data any) envelope[any] { return envelope[any]{http.StatusOK, "success", data} }

// Document describes the contract.
func (s *Server) Document(version string) *huma.OpenAPI {
	return contract.Document(version, s.routes())
}
