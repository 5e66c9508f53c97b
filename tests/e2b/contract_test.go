//go:build e2b

package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"sandyard/duplex"
	"sandyard/providers/remote/remotetest"
)

// contract stands between a vendor's client and an installation. It holds what passes to the vendor's document: a
// request that succeeds and its answer must be what the document says, and errors must have the vendor's shape.
type contract struct {
	t   *testing.T
	doc remotetest.Document
	// name is what the document calls a path; empty = it is none of the vendor's. Newer says that requests may differ.
	name func(r *http.Request) (name string, newer bool)
	// rpc says that a request is a call by the Connect protocol, which .proto files describe; nil = there are none.
	rpc   func(r *http.Request) bool
	fault func(path string, status int, body map[string]any) error
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	seen map[string]int // successes by operation
}

// hold puts a contract in front of the installation's API.
func (s *stack) hold(k *contract, file string) {
	s.t.Helper()
	s.front = k.before(s.t, s.api, file)
}

// holdE2B puts E2B's contracts in front of the installation: its API's, and envd's before the edge.
func (s *stack) holdE2B() {
	s.t.Helper()
	s.hold(e2bs(), e2bDocument)
	s.frontEdge = envds().before(s.t, s.edge, envdDocument)
}

// before stands between clients and a door, and returns its URL. The end of the test tells which operations passed.
func (k *contract) before(t *testing.T, door net.Listener, file string) string {
	t.Helper()
	doc, err := remotetest.Load(file)
	check(t, err)
	k.t, k.doc, k.seen = t, doc, map[string]int{}
	to := &url.URL{Scheme: "http", Host: door.Addr().String()}
	k.proxy = &httputil.ReverseProxy{
		FlushInterval:  -1,
		ModifyResponse: k.answered,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host // from which the installation makes URLs
		},
		ErrorLog: log.New(t.Output(), "the contract's proxy: ", 0),
	}
	front := listen(t)
	srv, served := &http.Server{}, make(chan error, 1)
	go func() { served <- duplex.Serve(srv, front, k) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.seen) == 0 {
			t.Error("nothing was held to the vendor's document")
		}
		var list []string
		for operation, n := range k.seen {
			list = append(list, fmt.Sprintf("%4d %s", n, operation))
		}
		slices.SortFunc(list, func(a, b string) int { return strings.Compare(a[5:], b[5:]) })
		t.Logf("held to %s:\n%s", file, strings.Join(list, "\n"))
	})
	return "http://" + front.Addr().String()
}

// call is a request under way, as the document has it.
type call struct {
	request *http.Request
	body    []byte
	newer   bool // than the document
}

type callKey struct{}

// ServeHTTP implements http.Handler.
func (k *contract) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if k.rpc != nil && k.rpc(r) {
		k.serveRPC(w, r)
		return
	}
	path, newer := k.name(r)
	if path != "" && r.Header.Get("Upgrade") == "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		ask := r.Clone(r.Context())
		ask.URL.Path, ask.URL.RawPath = path, ""
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, &call{ask, body, newer}))
	}
	k.proxy.ServeHTTP(w, r)
}

// answered looks at an answer on its way to the client.
func (k *contract) answered(res *http.Response) error {
	switch c := res.Request.Context().Value(callKey{}).(type) {
	case *rpcCall:
		k.answeredRPC(c, res)
		return nil
	case *call:
		return k.answeredCall(c, res)
	}
	return nil
}

func (k *contract) answeredCall(c *call, res *http.Response) error {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err := k.judge(c, res, body); err != nil {
		k.t.Errorf("not as the vendor's document has it: %s %s %.2000s is answered %d %.2000s: %v",
			c.request.Method, c.request.URL, c.body, res.StatusCode, body, err)
	}
	return nil
}

func (k *contract) judge(c *call, res *http.Response, body []byte) error {
	if res.StatusCode >= http.StatusBadRequest {
		var doc map[string]any
		if err := json.Unmarshal(body, &doc); err != nil {
			return err
		}
		return k.fault(c.request.URL.Path, res.StatusCode, doc)
	}
	if err := k.doc.Request(c.request, c.body); err != nil && !c.newer {
		return fmt.Errorf("the request: %w", err)
	}
	rec := httptest.NewRecorder()
	for name, values := range res.Header {
		rec.Header()[name] = values
	}
	rec.WriteHeader(res.StatusCode)
	if len(body) > 0 {
		if _, err := rec.Write(body); err != nil {
			return err
		}
	}
	if err := k.doc.Answer(c.request, rec); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[c.request.Method+" "+k.doc.Operation(c.request)]++
	return nil
}

// daytonas is the contract of Daytona. Its document describes no errors of the API, which are NestJS's.
func daytonas() *contract {
	return &contract{
		name: func(r *http.Request) (string, bool) {
			name, _ := strings.CutPrefix(r.URL.Path, "/daytona")
			return name, false
		},
		fault: func(path string, status int, body map[string]any) error {
			wanted := []string{"statusCode", "message", "error", "path", "timestamp"}
			if strings.HasPrefix(path, "/toolbox/") {
				wanted = append(wanted, "code", "source", "method")
			}
			return hasFields(body, status, "statusCode", wanted)
		},
	}
}

// e2bs is the contract of E2B. Newer clients use two operations that its document has not yet: each answers as the
// older one does.
func e2bs() *contract {
	return &contract{
		name: func(r *http.Request) (string, bool) {
			path := r.URL.Path
			older, is := strings.CutPrefix(path, "/v2")
			newer := is && r.Method == http.MethodPost && (older == "/sandboxes" || strings.HasSuffix(older, "/connect"))
			if newer {
				path = older
			}
			bases := []string{"/sandboxes", "/v2/sandboxes", "/snapshots", "/templates", "/v2/templates", "/volumes"}
			for _, base := range bases {
				if path == base || strings.HasPrefix(path, base+"/") {
					return path, newer
				}
			}
			return "", false
		},
		fault: func(_ string, status int, body map[string]any) error {
			return hasFields(body, status, "code", []string{"code", "message", "error_code"})
		},
	}
}

// hasFields says in what an error differs from one that has these fields and no others, of which one is the status.
func hasFields(body map[string]any, status int, code string, wanted []string) error {
	for _, name := range wanted {
		if value := body[name]; value == nil || value == "" {
			return fmt.Errorf("the error lacks %s", name)
		}
	}
	if body[code] != float64(status) || len(body) != len(wanted) {
		return fmt.Errorf("the error is not of the vendor's shape, which is %v", wanted)
	}
	return nil
}

// TestContractsAreHeldTo: what differs a little from a vendor's document is found.
func TestContractsAreHeldTo(t *testing.T) {
	t.Parallel()
	doc, err := remotetest.Load(daytonaDocument)
	check(t, err)
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
		good               bool
	}{
		{"PUT", "/api/sandbox/x/labels", `{"labels":{"a":"b"}}`, 200, `{"labels":{"a":"b"}}`, true},
		{"PUT", "/api/sandbox/x/labels", `{"labels":{"a":1}}`, 200, `{"labels":{"a":"b"}}`, false},
		{"PUT", "/api/sandbox/x/labels", `{"labels":{"a":"b"}}`, 200, `{"label":{"a":"b"}}`, false},
		{"PUT", "/api/sandbox/x/labels", `{"labels":{"a":"b"}}`, 201, `{"labels":{"a":"b"}}`, false},
		{"GET", "/api/nothing", ``, 200, `{}`, false},
		{"GET", "/toolbox/x/files/info", ``, 200, `{}`, false},
		{"GET", "/toolbox/x/work-dir", ``, 404, `{"statusCode":404,"message":"x"}`, false},
	} {
		k := daytonas()
		k.t, k.doc, k.seen = t, doc, map[string]int{}
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		res := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {"application/json"}}}
		if err := k.judge(&call{request: r, body: []byte(c.body)}, res, []byte(c.answer)); (err == nil) != c.good {
			t.Errorf("%s %s %s answered %d %s: %v", c.method, c.path, c.body, c.status, c.answer, err)
		}
	}
}
