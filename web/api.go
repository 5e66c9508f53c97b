package web

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"

	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Tags group the operations of the reference page.
const (
	tagSandboxes = "sandboxes"
	tagWork      = "work"
	tagJobs      = "jobs"
	tagTemplates = "templates"
	tagSchedules = "schedules"
	tagServer    = "server"
)

// Names of security schemes.
const (
	bearerAuth = "bearer"
	headerAuth = "header"
)

func (s *Server) newAPI() huma.API {
	api := humafiber.New(s.app, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Sandyard", Version: s.version, Description: introduction},
			Servers: []*huma.Server{{URL: "/"}},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					bearerAuth: {Type: "http", Scheme: "bearer", Description: "An API key"},
					headerAuth: {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key"},
				},
			},
			Tags: []*huma.Tag{
				{Name: tagSandboxes, Description: "Isolated environments that run code"},
				{Name: tagWork, Description: "Commands and files inside a sandbox"},
				{Name: tagJobs, Description: "Durable requests and their outcomes"},
				{Name: tagTemplates, Description: "Named images and settings that sandboxes are created from"},
				{Name: tagSchedules, Description: "Jobs that are submitted at recurring times"},
				{Name: tagServer, Description: "The server's features and health"},
			},
		},
		Formats:       map[string]huma.Format{"application/json": middleware.JSONFormat(), "json": middleware.JSONFormat()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{s.mw.NamedProblem},
	})
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(taken{ctx}) })
	api.UseMiddleware(s.checkQuery)
	return api
}

// taken is a request whose body takeBody has read. Huma's own way of reading it expects a stream, where Fiber has some.
type taken struct{ ofHuma }

type ofHuma = huma.Context // by another name than that of its own method

// BodyReader implements huma.Context. Huma copies the body, so the original is dropped.
func (t taken) BodyReader() io.Reader {
	req := humafiber.Unwrap(t.ofHuma).Request()
	return &readOnce{bytes.NewReader(req.Body()), func() { req.SetBodyRaw([]byte{}) }}
}

// readOnce calls drop when it has been read in one go.
type readOnce struct {
	*bytes.Reader

	drop func()
}

// WriteTo implements io.WriterTo, which io.Copy prefers.
func (r *readOnce) WriteTo(w io.Writer) (int64, error) {
	defer r.drop()
	return r.Reader.WriteTo(w)
}

// Unwrap is for humafiber.
func (t taken) Unwrap() huma.Context { return t.ofHuma }

const introduction = "Runs untrusted code in sandboxes. Every change is a durable job: the answer 202 means that it is " +
	"stored and will run; jobs of one sandbox run in the order of submission. Poll the job, wait for it " +
	"with `wait=30s`, or set a `callback_url`. If a program exits 1, its job still succeeds: check " +
	"`result.exit_code`. Errors are problem documents (RFC 9457) with a stable `code`."

// operation describes one operation that needs an API key.
func operation(id, method, path, tag, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary,
		Security: []map[string][]string{{bearerAuth: {}}, {headerAuth: {}}},
		// The server has read the body already, within bounds of its own.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
	}
}

// register adds an operation whose handler's errors go through problem.Of. One that may change something stands in the audit log
// before it does, unless anybody may call it.
func register[I, O any](s *Server, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	if op.Method == http.MethodGet || op.Security == nil {
		answer(s, op, handle)
		return
	}
	answer(s, op, func(ctx context.Context, in *I) (*O, error) {
		if err := s.mw.Begin(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, in)
	})
}

func answer[I, O any](s *Server, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = s.response("Error", "application/problem+json", reflect.TypeFor[problem.Problem]())
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		middleware.RequestOf(ctx).Action = op.Method + " " + op.Path
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.mw.Report(ctx, middleware.RequestOf(ctx), err)
		}
		return out, nil
	})
}

func (s *Server) response(description, media string, t reflect.Type) *huma.Response {
	schema := s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{media: {Schema: schema}}}
}

// write adds an operation that submits a job, and its entry of the audit log with it: 202 when it is accepted, 200 when it has ended already.
func write[I any](s *Server, op huma.Operation, handle func(context.Context, *I) (*acceptedOutput, error)) {
	op.DefaultStatus = http.StatusAccepted
	op.Responses = map[string]*huma.Response{
		"202": s.response("Accepted: the job will run", "application/json", reflect.TypeFor[Accepted]()),
		"200": s.response("The job ended within the wait, or an earlier request with this Idempotency-Key submitted it", "application/json", reflect.TypeFor[Accepted]()),
	}
	answer(s, op, handle)
}

// output is an answer that is nothing but its body.
type output[T any] struct {
	Body T
}
