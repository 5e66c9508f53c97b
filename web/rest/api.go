// Package rest is what operations of our own API have in common: their OpenAPI document, the check of queries and
// bodies, bounds of all that they take, pages of lists, and the way of their errors.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"
	"github.com/gofiber/fiber/v2"

	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Names of security schemes.
const (
	bearerAuth = "bearer"
	headerAuth = "header"
)

// API is operations with their document.
type API struct {
	mw   *middleware.Stack
	huma huma.API
	log  *slog.Logger
}

// Config is what an API is made of. All of it stays the caller's.
type Config struct {
	Stack *middleware.Stack
	Log   *slog.Logger
	// Title, Version, Description and Tags stand in the document.
	Title, Version, Description string
	Tags                        []*huma.Tag
}

// New returns an API whose operations are app's routes.
func New(app *fiber.App, c Config) *API {
	api := humafiber.New(app, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: c.Title, Version: c.Version, Description: c.Description},
			Servers: []*huma.Server{{URL: "/"}},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					bearerAuth: {Type: "http", Scheme: "bearer", Description: "An API key"},
					headerAuth: {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key"},
				},
			},
			Tags: c.Tags,
		},
		Formats:       map[string]huma.Format{"application/json": middleware.JSONFormat(), "json": middleware.JSONFormat()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{c.Stack.NamedProblem},
	})
	a := &API{mw: c.Stack, huma: api, log: c.Log}
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(taken{ctx}) })
	api.UseMiddleware(a.checkQuery)
	return a
}

// OpenAPI is the document as it now stands.
func (a *API) OpenAPI() *huma.OpenAPI { return a.huma.OpenAPI() }

// Operation describes one operation that needs an API key. Its route is such as "GET /v1/jobs/{id}".
func Operation(id, route, tag, summary string) huma.Operation {
	method, path, _ := strings.Cut(route, " ")
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary,
		Security: []map[string][]string{{bearerAuth: {}}, {headerAuth: {}}},
		// The server has read the body already, within bounds of its own.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
	}
}

// Route is Register for an operation of which nothing else is to be said.
func Route[I, O any](a *API, id, route, tag, summary string, handle func(context.Context, *I) (*O, error)) {
	Register(a, Operation(id, route, tag, summary), handle)
}

// Register adds an operation whose handler's errors go through problem.Of. One that may change something stands in the
// audit log before it does, unless anybody may call it.
func Register[I, O any](a *API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	if op.Method == http.MethodGet || op.Security == nil {
		Answer(a, op, handle)
		return
	}
	Answer(a, op, func(ctx context.Context, in *I) (*O, error) {
		if err := a.mw.Begin(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, in)
	})
}

// Answer is Register for an operation that writes its entry of the audit log itself, or with the jobs that it submits.
func Answer[I, O any](a *API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = a.Response("Error", "application/problem+json", reflect.TypeFor[problem.Problem]())
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		middleware.RequestOf(ctx).Action = op.Method + " " + op.Path
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.mw.Report(ctx, middleware.RequestOf(ctx), err)
		}
		return out, nil
	})
}

// Response is an answer of that media type whose body is a t.
func (a *API) Response(description, media string, t reflect.Type) *huma.Response {
	schema := a.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{media: {Schema: schema}}}
}

// Output is an answer that is nothing but its body.
type Output[T any] struct {
	Body T
}

// OK is the answer with that body.
func OK[T any](body T) *Output[T] { return &Output[T]{Body: body} }
