package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// e2bDocument is E2B's OpenAPI document, which every answer is held to that a rig gets from E2B's routes.
type e2bDocument struct {
	routes routers.Router
	fault  *openapi3.Schema
}

// e2bDoc reads the document once.
var e2bDoc = sync.OnceValues(func() (*e2bDocument, error) { //nolint:gochecknoglobals // a constant
	doc, err := openapi3.NewLoader().LoadFromFile("testdata/e2b/openapi.yml")
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background(), openapi3.DisableExamplesValidation()); err != nil {
		return nil, err
	}
	doc.Servers = nil // which are E2B's own
	// Newer clients use two operations that the document has not yet: each answers as the older one does.
	doc.Paths.Value("/v2/sandboxes").Post = doc.Paths.Value("/sandboxes").Post
	doc.Paths.Set("/v2/sandboxes/{sandboxID}/connect", doc.Paths.Value("/sandboxes/{sandboxID}/connect"))
	for _, s := range doc.Components.Schemas { // a name that E2B does not know may be a misspelt one
		if s.Value.AdditionalProperties.Has == nil && s.Value.AdditionalProperties.Schema == nil && len(s.Value.Properties) > 0 {
			s.Value.AdditionalProperties.Has = openapi3.Ptr(false)
		}
	}
	routes, err := gorillamux.NewRouter(doc)
	return &e2bDocument{routes, doc.Components.Schemas["Error"].Value}, err
})

// e2bBeyond are errors that an operation may answer although the document does not list them. E2B's servers check what is
// asked, how large it is, the key and its rights before any operation, and know templates that are missing and quotas that
// are full; what cannot be done now or not at all (503, 501) is our own to say.
func e2bBeyond(operation string) []int {
	always := []int{400, 401, 403, 413, 501, 503}
	if operation == "POST /sandboxes" || operation == "POST /v2/sandboxes" {
		return append(always, 404, 429)
	}
	return always
}

// e2bPath says whether a path is one of E2B's.
func e2bPath(path string) bool {
	bases := []string{"sandboxes", "v2/sandboxes", "snapshots", "templates", "v2/templates", "v3/templates", "volumes", "secrets"}
	return slices.ContainsFunc(bases, func(base string) bool { return strings.HasPrefix(path+"/", "/"+base+"/") })
}

// conforms says in what an answer differs from what the document says of the operation.
func conforms(req *http.Request, a answer) error {
	d, err := e2bDoc()
	if err != nil {
		return err
	}
	if err := d.holds(req, a); err != nil {
		return fmt.Errorf("not as E2B's document has it: %s %s answers %d %s: %w", req.Method, req.URL, a.status, a.raw, err)
	}
	return nil
}

func (d *e2bDocument) holds(req *http.Request, a answer) error {
	ask := &http.Request{Method: req.Method, URL: &url.URL{Path: req.URL.Path, RawQuery: req.URL.RawQuery}, Header: req.Header}
	route, path, err := d.routes.FindRoute(ask)
	if err != nil {
		return d.isError(a, []int{401, 501})
	}
	listed := route.Operation.Responses.Status(a.status)
	if listed == nil {
		return d.isError(a, e2bBeyond(req.Method+" "+route.Path))
	}
	if len(listed.Value.Content) == 0 && (a.raw != "" || a.header.Get("Content-Type") != "") {
		return fmt.Errorf("a body where none is: %q %s", a.header.Get("Content-Type"), a.raw)
	}
	return openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: ask, PathParams: path, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// isError says whether an answer is an error in E2B's shape, with one of some statuses.
func (d *e2bDocument) isError(a answer, statuses []int) error {
	if !slices.Contains(statuses, a.status) {
		return fmt.Errorf("E2B answers no %d there: %s", a.status, a.raw)
	}
	var body any
	if err := json.Unmarshal([]byte(a.raw), &body); err != nil {
		return err
	}
	return d.fault.VisitJSON(body, openapi3.VisitAsResponse())
}

// TestE2BDocumentIsHeldTo: a small difference from E2B's document is found.
func TestE2BDocumentIsHeldTo(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	id := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}).want(t, 201).text("sandboxID")
	for path, changes := range map[string][][2]string{
		"/sandboxes/" + id: {
			{`"endAt"`, `"endsAt"`},
			{`"domain"`, `"domian"`},
			{`"state":"running"`, `"state":"creating"`},
			{`"cpuCount":1`, `"cpuCount":"1"`},
			{`"startedAt":"`, `"startedAt":"at `},
			{`"memoryMB":512`, `"memoryMB":12`},
			{`"metadata":{}`, `"metadata":null`},
			{"}", "},"},
		},
		"/v2/sandboxes":                 {{"[", `{"sandboxes":[`}, {`"clientID":"sandyard",`, ""}},
		"/v2/sandboxes/" + id + "/logs": {{`"level":"info"`, `"level":"fine"`}},
		"/sandboxes/none":               {{`"code":404`, `"code":"404"`}, {`"message"`, `"detail"`}},
		"/volumes":                      {{`"message"`, `"detail"`}},
	} {
		req := must(http.NewRequest("GET", r.url+path, nil))(t)
		genuine := r.call("GET", path, nil)
		for _, change := range changes {
			a := genuine
			if a.raw = strings.Replace(genuine.raw, change[0], change[1], 1); a.raw == genuine.raw || conforms(req, a) == nil {
				t.Errorf("%s: %s for %s passes in %s", path, change[1], change[0], genuine.raw)
			}
		}
	}
	list := r.call("GET", "/v2/sandboxes", nil).want(t, 200)
	get, remove := must(http.NewRequest("GET", r.url+"/v2/sandboxes", nil))(t), must(http.NewRequest("DELETE", r.url+"/sandboxes/"+id, nil))(t)
	headed := func(name, value string) http.Header {
		h := list.header.Clone()
		h.Set(name, value)
		return h
	}
	for what, err := range map[string]error{
		"a total that is no number": conforms(get, answer{status: 200, header: headed("X-Total-Running", "many"), raw: list.raw}),
		"another media type":        conforms(get, answer{status: 200, header: headed("Content-Type", "text/html"), raw: list.raw}),
		"another status":            conforms(get, answer{status: 202, header: list.header, raw: list.raw}),
		"a body where none is":      conforms(remove, answer{status: 204, header: list.header, raw: list.raw}),
		"a failure of another kind": conforms(remove, answer{status: 422, header: list.header, raw: `{"code":422,"message":"no"}`}),
	} {
		if err == nil {
			t.Errorf("%s passes", what)
		}
	}
}

// TestE2BSmallSandbox: the document knows no sandbox with as little memory as one may have here.
func TestE2BSmallSandbox(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	r.call("POST", "/v1/sandboxes?wait=60s", map[string]any{"memory_mb": 64}).want(t, 200)
	if a := r.call("GET", "/v2/sandboxes", nil).want(t, 200); !strings.Contains(a.raw, `"memoryMB":128`) {
		t.Errorf("listed as %s", a.raw)
	}
}
