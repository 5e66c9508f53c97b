// Package remotetest is what the tests of providers over a vendor's API have in common: the vendor's OpenAPI document,
// to which requests and answers are held, answers of servers that mean harm, and checks of what a caller is told.
package remotetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"sandyard/providers"
)

// Document is a vendor's description of its API.
type Document struct{ router routers.Router }

// Load reads a document. A name that it does not know counts as wrong: it may be a misspelt one.
func Load(file string) (Document, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(file)
	if err != nil {
		return Document{}, err
	}
	doc.Servers = nil
	for _, s := range doc.Components.Schemas {
		if s.Value.AdditionalProperties.Has == nil && s.Value.AdditionalProperties.Schema == nil &&
			len(s.Value.Properties) > 0 {
			s.Value.AdditionalProperties.Has = openapi3.Ptr(false)
		}
	}
	router, err := gorillamux.NewRouter(doc)
	return Document{router}, err
}

// Request holds a request to the document.
func (d Document) Request(r *http.Request, body []byte) error {
	in, err := d.route(r, body)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(r.Context(), in)
}

// Answer holds an answer to the document, if it is a success: documents describe few errors.
func (d Document) Answer(r *http.Request, rec *httptest.ResponseRecorder) error {
	if rec.Code >= http.StatusBadRequest {
		return nil
	}
	in, err := d.route(r, nil)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: rec.Code, Header: rec.Header(),
		Body:    io.NopCloser(bytes.NewReader(rec.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// Operation is the path of a request's operation; empty = the document has none for it.
func (d Document) Operation(r *http.Request) string {
	in, err := d.route(r, nil)
	if err != nil {
		return ""
	}
	return in.Route.Path
}

func (d Document) route(r *http.Request, body []byte) (*openapi3filter.RequestValidationInput, error) {
	ask := r.Clone(r.Context())
	ask.Body, ask.URL = io.NopCloser(bytes.NewReader(body)), &url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	route, params, err := d.router.FindRoute(ask)
	return &openapi3filter.RequestValidationInput{
		Request: ask, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true},
	}, err
}

// Tell answers with v as JSON.
func Tell(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// Refusing answers with a text, which says it is JSON, and headers: names and values by turns.
func Refusing(status int, text string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// HostileAnswers are those of a server that is none, or means harm.
func HostileAnswers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"html":         Refusing(http.StatusOK, "<html><body>sign in</body></html>"),
		"another type": Refusing(http.StatusOK, `"text"`),
		"null":         Refusing(http.StatusOK, `null`),
		"deep":         Refusing(http.StatusOK, strings.Repeat("[", 1<<19)),
		"redirect":     Refusing(http.StatusFound, "", "Location", "http://127.0.0.1:1/steal"),
		"hang up":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			for chunk := strings.Repeat(" ", 1<<16); ; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		},
	}
}

// Clean fails the test where an error or the log shows a secret, or the user is told nothing, or something of hidden.
func Clean(t *testing.T, err error, log string, secrets []string, hidden string) {
	t.Helper()
	e := providers.AsError(err)
	shown := e.Error() + fmt.Sprintf(" %v %+v", e.Err, e.Err) + log
	for _, secret := range secrets {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown in %s", secret, shown)
		}
	}
	if strings.Contains(e.Message, hidden) || e.Message == "" {
		t.Errorf("the user is told %q", e.Message)
	}
}
