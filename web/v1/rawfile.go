package v1

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// Inside is the way into sandboxes.
type Inside interface {
	// Inside passes a request on to the gateway of the sandbox's node, where its path is known. What does not come about
	// is told to refuse, as a *providers.Error or one of the database.
	Inside(
		w http.ResponseWriter,
		r *http.Request,
		sandboxID string,
		refuse func(http.ResponseWriter, *http.Request, error),
	)
	// Wake returns when a sandbox that is paused and has auto_resume is no longer paused. Of others it asks nothing.
	Wake(ctx context.Context, sandboxID string) error
}

const watchPath = "/files/watch"

// inside has the routes of what passes through the API to the inside of sandboxes: files and terminals.
type inside struct{ *core }

// addRawFiles adds what streams files. It comes before all that wants a request whole.
func (s *inside) addRawFiles() {
	both := []string{fiber.MethodGet, fiber.MethodPut}
	for path, methods := range map[string][]string{"/files/raw": both, "/files/tree": both, watchPath: {fiber.MethodGet}} {
		for _, method := range methods {
			if method == fiber.MethodGet {
				s.app.Head("/v1/sandboxes/:id"+path, s.Stack.NeedKey(models.ScopeFiles), s.crossInside(path))
			}
			s.app.Add(method, "/v1/sandboxes/:id"+path, s.Stack.NeedKey(models.ScopeFiles), s.crossInside(path))
		}
	}
}

// untilQuit is a handler whose requests end when the server begins to.
func (s *inside) untilQuit(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer s.OnQuit(cancel)()
		handle(w, r.WithContext(ctx))
	}
}

// fileHeaders are the headers of a request for a file that reach the gateway.
func fileHeaders() []string {
	return []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"}
}

// crossInside passes requests on to a route of the gateway of the sandbox's node.
func (s *inside) crossInside(path string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id := c.Params("id")
		if err := s.checkRawQuery(c, path); err != nil {
			return err
		}
		if err := s.checkInside(c.UserContext(), id); err != nil {
			return err
		}
		if coding := c.Get(fiber.HeaderContentEncoding); coding != "" {
			return problem.New(
				fiber.StatusUnsupportedMediaType,
				"unsupported_content_encoding",
				"Content-Encoding is not supported; send the plain bytes without it (a gzip-compressed archive needs no "+
					"Content-Encoding)",
			)
		}
		conn := c.Context().Conn()
		handle := func(w http.ResponseWriter, r *http.Request) {
			s.Inside.Inside(w, r, id, func(w http.ResponseWriter, r *http.Request, err error) {
				duplex.LingerAfter(conn) // the client may still send
				s.refuseInside(w, r, err)
			})
		}
		if path == watchPath {
			handle = s.untilQuit(handle)
		}
		return s.Bridge.Cross(c, path, fileHeaders(), handle)
	}
}

// checkRawQuery is checkQuery for a route that huma does not serve.
func (s *inside) checkRawQuery(c *fiber.Ctx, path string) error {
	item := s.api.OpenAPI().Paths["/v1/sandboxes/{id}"+path]
	op := item.Get
	if c.Method() == fiber.MethodPut {
		op = item.Put
	}
	given, err := url.ParseQuery(string(c.Request().URI().QueryString()))
	if err != nil {
		return problem.Invalid("url", "has a query that is not well formed")
	}
	return rest.CheckQuery(op.Parameters, given)
}

// checkInside says why a sandbox of the request's tenant cannot be reached; nil = it can.
func (s *inside) checkInside(ctx context.Context, id string) error {
	box, err := s.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, id)
	if err != nil {
		return err
	}
	switch box.State {
	case models.SandboxRunning:
		return nil
	case models.SandboxPaused:
		if box.AutoResume {
			return nil // the way in resumes it
		}
		return problem.New(fiber.StatusConflict, string(providers.Paused), "the sandbox is paused; resume it first")
	case models.SandboxCreating:
		return problem.RetryLater(problem.New(fiber.StatusConflict, "sandbox_creating",
			"the sandbox is still being created; wait for its create job to end"), 1)
	default:
		return box.EndedError()
	}
}

// refuseInside answers a request that has crossed with a problem document.
func (s *inside) refuseInside(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone, or this server is ending
	}
	p := s.Stack.Report(ctx, middleware.RequestOf(ctx), err)
	w.Header().Set("Content-Type", p.ContentType(""))
	p.SetHeaders(w.Header().Set)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that is gone needs no answer
}

// describeRawFiles writes down in the API's description what addRawFiles has added to Fiber.
func (s *inside) describeRawFiles() {
	path := query("path", "Relative paths start at the work directory; a leading ~/ means the home directory", true)
	content := map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
	}
	archive := map[string]*huma.MediaType{
		"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		"application/gzip":  {Schema: &huma.Schema{Type: "string", Format: "binary"}},
	}
	op := rest.Operation("download-file", "GET /v1/sandboxes/{id}/files/raw", tagWork, "Download a file of any size")
	op.Description = "Runs immediately, in parallel with the sandbox's jobs. Supports Range, HEAD, ETag and " +
		"Last-Modified. An interrupted response " +
		"closes the connection before its Content-Length is reached."
	op.Parameters = []*huma.Param{path}
	ranges := map[string]*huma.MediaType{"multipart/byteranges": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	maps.Copy(ranges, content)
	download := s.describe(op, "The file", content)
	download["206"] = &huma.Response{Description: "The requested range of the file", Content: ranges}
	download["304"] = &huma.Response{Description: "The file has not changed since If-None-Match or If-Modified-Since"}

	op = rest.Operation("upload-file", "PUT /v1/sandboxes/{id}/files/raw", tagWork, "Upload a file of any size")
	op.Description = "Runs immediately, in parallel with the sandbox's jobs. The body is the file, of any size. The " +
		"file is replaced atomically, " +
		"and missing parent directories are created; an interrupted upload leaves the old file."
	op.Parameters = []*huma.Param{path, query("mode", "Permissions in octal; default 0644", false)}
	op.RequestBody = &huma.RequestBody{Required: true, Content: content}
	s.describe(
		op,
		"What was written",
		s.api.Response("", "application/json", reflect.TypeFor[providers.FileInfo]()).Content,
	)

	op = rest.Operation("watch-files", "GET /v1/sandboxes/{id}/files/watch", tagWork, "Watch a directory")
	op.Description = "Server-sent events until you disconnect: `ready` when the watch is set up, then `change` with `op` and `name` for each change. If " +
		"changes were lost, the last event is `overflow`, otherwise `end`; both have `code` and `detail`. Then list the directory and watch again."
	op.Parameters = []*huma.Param{path, query("recursive", "true = include all subdirectories", false)}
	s.describe(op, "The events", map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}})

	op = rest.Operation("download-tree", "GET /v1/sandboxes/{id}/files/tree", tagWork,
		"Download a directory as a tar archive")
	op.Description = "Runs immediately, in parallel with the sandbox's jobs. The archive holds files, directories and " +
		"symbolic links; links are not followed."
	op.Parameters = []*huma.Param{path, query("gzip", "1 = compressed with gzip", false)}
	s.describe(op, "The archive", archive)

	op = rest.Operation("upload-tree", "PUT /v1/sandboxes/{id}/files/tree", tagWork,
		"Unpack a tar archive into a directory")
	op.Description = "Runs immediately, in parallel with the sandbox's jobs. The body is a tar archive, plain or " +
		"compressed with gzip. A missing directory is " +
		"created. Entries that leave the directory, pass through a symbolic link or are devices are rejected by name (`invalid_archive`); earlier " +
		"entries stay unpacked. Setuid, setgid and sticky bits are removed, and the response names these entries."
	op.Parameters = []*huma.Param{path}
	op.RequestBody = &huma.RequestBody{Required: true, Content: archive}
	s.describe(
		op,
		"What was unpacked",
		s.api.Response("", "application/json", reflect.TypeFor[providers.TreeReport]()).Content,
	)
}

func query(name, doc string, required bool) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Required: required, Schema: &huma.Schema{Type: "string"}}
}

// describe adds an operation on a sandbox that huma does not serve, and returns its responses.
func (s *inside) describe(
	op huma.Operation,
	description string,
	content map[string]*huma.MediaType,
) map[string]*huma.Response {
	op.Parameters = append(
		[]*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}},
		op.Parameters...)
	op.Responses = map[string]*huma.Response{
		"200":     {Description: description, Content: content},
		"default": s.api.Response("Error", "application/problem+json", reflect.TypeFor[problem.Problem]()),
	}
	s.api.OpenAPI().AddOperation(&op)
	return op.Responses
}
