package web_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// ownDocument is this API's own OpenAPI document, to which every answer that a rig gets from /v1 is held.
type ownDocument struct {
	once     sync.Once
	err      error
	routes   routers.Router
	compiler *jsonschema.Compiler

	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema // by JSON pointer
}

var ownDoc ownDocument //nolint:gochecknoglobals // the document is the same in every rig and slow to read

// load reads the document once from a rig's server.
func (d *ownDocument) load(r *rig) error {
	d.once.Do(func() { d.err = d.read(r) })
	return d.err
}

func (d *ownDocument) read(r *rig) error {
	res, err := r.client.Get(r.url + "/openapi.json")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return err
	}
	doc.Servers = nil
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	d.compiler, d.compiled = jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("/openapi.json", whole); err != nil {
		return err
	}
	d.routes, err = gorillamux.NewRouter(doc)
	return err
}

// schema is what stands in the document behind the names of a path.
func (d *ownDocument) schema(names ...string) (*jsonschema.Schema, error) {
	pointer := ""
	for _, name := range names {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[pointer]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile("/openapi.json#" + pointer)
	d.compiled[pointer] = s
	return s, err
}

// conformsToOwn says in what an answer of /v1 differs from what the server's own document says of the operation.
func conformsToOwn(r *rig, req *http.Request, a answer) error {
	if err := ownDoc.load(r); err != nil {
		return fmt.Errorf("read the server's OpenAPI document: %w", err)
	}
	if err := ownDoc.holds(req, a); err != nil {
		return fmt.Errorf("not as /openapi.json has it: %s %s answers %d %s: %w", req.Method, req.URL, a.status, a.raw, err)
	}
	return nil
}

func (d *ownDocument) holds(req *http.Request, a answer) error {
	if req.Method == http.MethodHead {
		return nil // has no body
	}
	ask := &http.Request{Method: req.Method, URL: &url.URL{Path: req.URL.Path, RawQuery: req.URL.RawQuery}, Header: req.Header}
	route, path, err := d.routes.FindRoute(ask)
	if err != nil {
		return d.isProblem(a)
	}
	listed := route.Operation.Responses.Status(a.status)
	if listed == nil {
		return d.isProblem(a)
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content := listed.Value.Content.Get(media)
	switch {
	case len(listed.Value.Content) == 0 && a.raw == "":
		return nil
	case content == nil:
		return fmt.Errorf("the media type %q is not listed", media)
	case media != "application/json":
		return nil
	}
	if route.Operation.OperationID == "get-job" && !req.URL.Query().Has("fields") {
		return d.visit(a, "components", "schemas", "Job") // whole, and no JobFields
	}
	err = d.visit(a, "paths", route.Path, strings.ToLower(route.Method), "responses", strconv.Itoa(a.status), "content", media, "schema")
	return errors.Join(err, openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: ask, PathParams: path, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: true, MultiError: true},
	}))
}

func (d *ownDocument) isProblem(a answer) error {
	if a.status < 400 || a.header.Get("Content-Type") != "application/problem+json" {
		return fmt.Errorf("it is no problem document: %q", a.header.Get("Content-Type"))
	}
	return d.visit(a, "components", "schemas", "Problem")
}

// visit holds the body of an answer to the schema at a place of the document.
func (d *ownDocument) visit(a answer, place ...string) error {
	s, err := d.schema(place...)
	if err != nil {
		return err
	}
	body, err := jsonschema.UnmarshalJSON(strings.NewReader(a.raw))
	if err != nil {
		return err
	}
	return s.Validate(body)
}

// TestOwnDocumentIsHeldTo: a small difference from the document is found.
func TestOwnDocumentIsHeldTo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.sandbox(object{})
	exec := r.call("POST", "/v1/sandboxes/"+id+"/exec?wait=60s", object{"command": "fake:exit 0"}).want(t, 200).text("job.id")
	cell := r.call("POST", "/v1/sandboxes/"+id+"/code?wait=60s", object{"language": "python", "code": "fake:stdout 1"}).want(t, 200)
	defer r.call("DELETE", "/v1/sandboxes/"+id+"?wait=60s", nil)
	for path, changes := range map[string][][2]string{
		"/v1/sandboxes/" + id: {{`"state":"running"`, `"state":"runs"`}, {`"labels":{}`, `"labels":null`}, {`"provider"`, `"supplier"`}},
		"/v1/jobs/" + exec: {
			{`"exit_code":0`, `"exit_code":null`}, {`"kind":"exec"`, `"kind":"exec_wait"`}, {`"kind":"exec"`, `"kind":"none"`},
		},
		"/v1/jobs/" + cell.text("job.id"): {{`"results":[`, `"results":null,"result":[`}, {`"error":null`, `"error":"none"`}},
		"/v1/jobs?kind=exec":              {{`"jobs":[{"id"`, `"jobs":[{"name"`}, {`"jobs":[`, `"jobs":null,"job":[`}},
		"/v1/jobs/none":                   {{`"detail"`, `"message"`}},
	} {
		req := must(http.NewRequest("GET", r.url+path, nil))(t)
		genuine := r.call("GET", path, nil)
		for _, change := range changes {
			a := genuine
			if a.raw = strings.Replace(genuine.raw, change[0], change[1], 1); a.raw == genuine.raw || conformsToOwn(r, req, a) == nil {
				t.Errorf("%s: %s for %s passes in %s", path, change[1], change[0], genuine.raw)
			}
		}
	}
}
