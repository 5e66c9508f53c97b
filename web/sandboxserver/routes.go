package sandboxserver

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/web/calls"
	"sandyard/web/problem"
)

//nolint:gochecknoglobals // a constant
var contract = calls.Contract{
	Title: "Sandbox server", Failure: reflect.TypeFor[failure](),
	Description: "The routes of the sandbox server, over durable jobs. The API key is the password of the server's URL: " +
		"http://any:KEY@host:8080.",
	Security: map[string]*huma.SecurityScheme{
		"basic":  {Type: "http", Scheme: "basic", Description: "Any user, an API key as the password"},
		"bearer": {Type: "http", Scheme: "bearer", Description: "An API key, on all routes but DELETE"},
	},
	Body: func(p *problem.Problem) any { return failure{detail(p), p.Code, p.RequestID} },
}

func (s *Server) routes() []calls.Route {
	succeeded := reflect.TypeFor[done]()
	return []calls.Route{
		calls.Post(base+"/create", "create", "Create a sandbox", s.create, reflect.TypeFor[created]()),
		calls.Post(base+"/connect", "connect", "Resume a paused sandbox, and start its timeout again", s.connect, succeeded),
		calls.Post(
			base+"/run-command",
			"run-command",
			"Run a shell command; one in the background answers at once, with empty output",
			s.run,
			reflect.TypeFor[output](),
		),
		calls.Post(
			base+"/expose-port",
			"expose-port",
			"Return the public URL of a port",
			s.expose,
			reflect.TypeFor[exposed](),
		),
		calls.Post(base+"/write-file", "write-file", "Replace a file; missing directories are created", s.write, succeeded),
		calls.Post(base+"/read-file", "read-file", "Read a file of UTF-8 text", s.read, reflect.TypeFor[file]()),
		calls.Post(base+"/timeout", "timeout", "Set the timeout of a sandbox, in seconds from now", s.timeout, succeeded),
		{
			Method:  http.MethodGet,
			Path:    base + "/:id/status",
			ID:      "status",
			Summary: "Return the state of a sandbox",
			Out:     reflect.TypeFor[status](),
			Handle:  s.status,
		},
		{
			Method:  http.MethodDelete,
			Path:    base + "/:id",
			ID:      "delete",
			Summary: "Delete a sandbox; one that does not exist is no error",
			Out:     succeeded,
			Handle:  s.remove,
		},
	}
}

// Document describes the contract.
func (s *Server) Document(version string) *huma.OpenAPI {
	return contract.Document(version, s.routes())
}
