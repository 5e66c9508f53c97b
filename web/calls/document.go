package calls

import (
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Document collects the operations of a contract for its OpenAPI document.
type Document struct {
	Title, Version, Description string
	Failure                     reflect.Type // of every error
	Security                    map[string]*huma.SecurityScheme

	paths    map[string]*huma.PathItem
	registry huma.Registry
}

// Add adds an operation. Its path has parameters as :name, in is nil where there is no body.
func (d *Document) Add(method, path, id, summary string, in, out reflect.Type) {
	if d.registry == nil {
		d.registry = huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
		d.paths = map[string]*huma.PathItem{}
	}
	op := &huma.Operation{OperationID: id, Summary: summary, Responses: map[string]*huma.Response{
		"200": d.response("OK", out), "default": d.response("Error", d.Failure),
	}}
	param := regexp.MustCompile(`:([a-z_]+)`)
	for _, p := range param.FindAllStringSubmatch(path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: p[1], In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	if in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: d.json(in)}
	}
	path = param.ReplaceAllString(path, "{$1}")
	item := d.paths[path]
	if item == nil {
		item = &huma.PathItem{}
		d.paths[path] = item
	}
	switch method {
	case http.MethodGet:
		item.Get = op
	case http.MethodDelete:
		item.Delete = op
	default:
		item.Post = op
	}
}

func (d *Document) response(description string, t reflect.Type) *huma.Response {
	return &huma.Response{Description: description, Content: d.json(t)}
}

func (d *Document) json(t reflect.Type) map[string]*huma.MediaType {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	return map[string]*huma.MediaType{"application/json": {Schema: d.registry.Schema(t, true, name)}}
}

// OpenAPI returns the document.
func (d *Document) OpenAPI() *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0", Info: &huma.Info{Title: d.Title, Version: d.Version, Description: d.Description},
		Servers: []*huma.Server{{URL: "/"}}, Paths: d.paths,
		Components: &huma.Components{Schemas: d.registry, SecuritySchemes: d.Security},
	}
}
