package calls

import (
	"context"
	"net/http"
	"reflect"
	"regexp"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Contract is what the routes of one contract share.
type Contract struct {
	Title, Description string
	Failure            reflect.Type // of every error
	Security           map[string]*huma.SecurityScheme
	// Body is what an error is in this contract.
	Body func(*problem.Problem) any
}

// Route is one row of a contract.
type Route struct {
	Method, Path string // parameters are written :name
	ID, Summary  string
	Query        []string // parameters, none of them required
	Anybody      bool     // it asks for no credentials
	In, Out      reflect.Type
	Handle       fiber.Handler
}

// Post is a route whose handler takes a body and returns what it is answered with.
func Post[T any](path, id, summary string, do func(context.Context, *T) (any, error), out reflect.Type) Route {
	return Route{
		Method:  http.MethodPost,
		Path:    path,
		ID:      id,
		Summary: summary,
		In:      reflect.TypeFor[T](),
		Out:     out,
		Handle: func(c *fiber.Ctx) error {
			var in T
			if err := middleware.Decode(c.Request().Body(), &in); err != nil {
				return err
			}
			out, err := do(c.UserContext(), &in)
			if err != nil {
				return err
			}
			return c.JSON(out)
		},
	}
}

// Enter is the first handler of a route: it goes on where admit lets the request pass, and writes the errors of all
// that follow as the contract does.
func (k Contract) Enter(mw *middleware.Stack, admit fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		middleware.RequestOf(c.UserContext()).Act(c.Method(), c.Route().Path)
		err := admit(c)
		if err == nil {
			err = c.Next()
		}
		if err == nil {
			return nil
		}
		return k.Refuse(mw, c, err)
	}
}

// Refuse answers with an error. These contracts know 404 for what has ended, and 422 for all that is wrong with a body.
func (k Contract) Refuse(mw *middleware.Stack, c *fiber.Ctx, err error) error {
	p := mw.Report(c.UserContext(), middleware.RequestOf(c.UserContext()), err)
	switch p.Code {
	case "sandbox_ended":
		p.Status = http.StatusNotFound
	case "invalid_json", "invalid_utf8":
		p.Status = http.StatusUnprocessableEntity
	}
	p.SetHeaders(middleware.Setter(c))
	if p.Status == http.StatusRequestEntityTooLarge {
		duplex.LingerAfter(c.Context().Conn())
	}
	return c.Status(p.Status).JSON(k.Body(p))
}

// Document describes the contract.
func (k Contract) Document(version string, routes []Route) *huma.OpenAPI {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0", Info: &huma.Info{Title: k.Title, Version: version, Description: k.Description},
		Servers:    []*huma.Server{{URL: "/"}},
		Components: &huma.Components{Schemas: schemas, SecuritySchemes: k.Security},
	}
	content := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(t, true, t.Name())}}
	}
	param := regexp.MustCompile(`:([a-z_]+)`)
	text := &huma.Schema{Type: huma.TypeString}
	for _, r := range routes {
		op := &huma.Operation{
			Method: r.Method, Path: param.ReplaceAllString(r.Path, "{$1}"), OperationID: r.ID, Summary: r.Summary,
			Responses: map[string]*huma.Response{
				"200": {Description: "OK", Content: content(r.Out)}, "default": {Description: "Error", Content: content(k.Failure)},
			},
		}
		for _, p := range param.FindAllStringSubmatch(r.Path, -1) {
			op.Parameters = append(op.Parameters, &huma.Param{Name: p[1], In: "path", Required: true, Schema: text})
		}
		for _, name := range r.Query {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "query", Schema: text})
		}
		for name := range k.Security {
			if !r.Anybody { // any of them will do
				op.Security = append(op.Security, map[string][]string{name: {}})
			}
		}
		if r.In != nil {
			op.RequestBody = &huma.RequestBody{Required: true, Content: content(r.In)}
			body := op.RequestBody.Content["application/json"].Schema
			schemas.SchemaFromRef(body.Ref).AdditionalProperties = true // Decode ignores them
		}
		api.AddOperation(op)
	}
	return api
}
