package sandboxserver

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/web/calls"
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
		post("/create", "create", "Create a sandbox", s.create, reflect.TypeFor[created]()),
		post("/connect", "connect", "Resume a paused sandbox, and start its timeout again", s.connect, reflect.TypeFor[done]()),
		post("/run-command", "run-command", "Run a shell command; one in the background answers at once, with empty output", s.run, reflect.TypeFor[output]()),
		post("/expose-port", "expose-port", "Return the public URL of a port", s.expose, reflect.TypeFor[exposed]()),
		post("/write-file", "write-file", "Replace a file; missing directories are created", s.write, reflect.TypeFor[done]()),
		post("/read-file", "read-file", "Read a file of UTF-8 text", s.read, reflect.TypeFor[file]()),
		post("/timeout", "timeout", "Let a sandbox end so many seconds from now", s.timeout, reflect.TypeFor[done]()),
		{http.MethodGet, base + "/:id/status", "status", "Say how a sandbox stands", nil, reflect.TypeFor[status](), s.status},
		{http.MethodDelete, base + "/:id", "delete", "Delete a sandbox; one that does not exist is no error", nil, reflect.TypeFor[done](), s.remove},
	}
}

func post[T any](path, id, summary string, do call[T], out reflect.Type) route {
	return route{http.MethodPost, base + path, id, summary, reflect.TypeFor[T](), out, with(do)}
}

// Document describes the contract.
func (s *Server) Document(version string) *huma.OpenAPI {
	d := calls.Document{Title: "Sandbox server", Version: version, Failure: reflect.TypeFor[failure](), Description: "The routes of the sandbox server, over " +
		"durable jobs. The API key is the password of the server's URL: http://any:KEY@host:8080."}
	for _, r := range s.routes() {
		d.Add(r.method, r.path, r.id, r.summary, r.in, r.out)
	}
	return d.OpenAPI()
}
