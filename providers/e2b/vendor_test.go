package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"sandyard/dev/testenv"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers/e2b"
	"sandyard/providers/remote/remotetest"
)

const (
	apiKey    = "e2b_0123456789abcdef0123456789abcdef01234567"
	envdToken = "envdtoken0123456789abcdef"
)

// document is E2B's own description of its API.
//
//nolint:gochecknoglobals // a constant
var document = sync.OnceValues(func() (remotetest.Document, error) {
	return remotetest.Load("../../web/testdata/e2b/openapi.yml")
})

// vendor stands in E2B's place: sandboxes in memory, and faults on demand.
type vendor struct {
	t    *testing.T
	http *httptest.Server
	log  testenv.Book

	mu      sync.Mutex
	boxes   []*vendorBox
	made    int
	asked   []string
	faults  map[string]http.HandlerFunc // by method and path pattern, with {id} for a sandbox's; once each
	inside  http.HandlerFunc            // in place of envd
	envd    string                      // its version
	lateBy  int                         // how many lists do not show a new sandbox
	foreign bool                        // checks of answers are off: they are meant to be wrong
}

type vendorBox struct {
	ID       string
	State    string
	At       time.Time
	Metadata map[string]string
	unlisted int
	timeout  int64
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{t: t, faults: map[string]http.HandlerFunc{}, envd: "0.6.13"}
	v.http = httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(v.http.Close)
	return v
}

func (v *vendor) document() remotetest.Document {
	doc, err := document()
	if err != nil {
		v.t.Error(err)
	}
	return doc
}

func (v *vendor) open() *e2b.Provider {
	v.t.Helper()
	p, err := e2b.New(e2b.Config{
		APIKey: apiKey, URL: v.http.URL, DataURL: v.http.URL + "/inside", Fleet: "fleet-1", Template: "base",
		Logger: slog.New(slog.NewTextHandler(&v.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = p.Close() })
	return p
}

// fault lets the next call of an operation be answered otherwise.
func (v *vendor) fault(operation string, f http.HandlerFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults[operation] = f
}

// always lets all calls of an operation be answered otherwise, until there is another fault for it.
func (v *vendor) always(operation string, f http.HandlerFunc) {
	v.fault(operation, func(w http.ResponseWriter, r *http.Request) {
		v.always(operation, f)
		f(w, r)
	})
}

// calls returns what was asked since the last time.
func (v *vendor) calls() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	asked := v.asked
	v.asked = nil
	return asked
}

func (v *vendor) ids() (ids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.boxes {
		ids = append(ids, b.ID)
	}
	return ids
}

func (v *vendor) serve(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/inside"); ok {
		v.serveInside(w, r, rest)
		return
	}
	if r.Header.Get("X-Api-Key") != apiKey {
		fail(w, 401, "invalid API key")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := v.document().Request(r, body); err != nil {
		v.t.Errorf("not as E2B's document has it: %s %s %s: %v", r.Method, r.URL, body, err)
	}
	operation, id := r.Method+" "+r.URL.Path, ""
	if parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/sandboxes/"), "/"); strings.HasPrefix(
		r.URL.Path,
		"/sandboxes/",
	) {
		id = parts[0]
		operation = r.Method + " " + strings.Join(append([]string{"{id}"}, parts[1:]...), "/")
	}
	v.mu.Lock()
	v.asked = append(v.asked, operation)
	f := v.faults[operation]
	delete(v.faults, operation)
	v.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if f != nil {
		f(w, r)
		return
	}
	v.answer(w, r, operation, id, body)
}

// answer does what E2B does, and holds the answer to its document.
func (v *vendor) answer(w http.ResponseWriter, r *http.Request, operation, id string, body []byte) {
	rec := httptest.NewRecorder()
	v.do(rec, r, operation, id, body)
	if err := v.document().Answer(r, rec); err != nil {
		v.t.Errorf("the stand-in is not as E2B's document has it: %s answers %d %s: %v", operation, rec.Code, rec.Body, err)
	}
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (v *vendor) do(w http.ResponseWriter, r *http.Request, operation, id string, body []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch operation {
	case "POST /sandboxes":
		v.create(w, body)
		return
	case "GET /v2/sandboxes":
		v.list(w, r)
		return
	}
	i := slices.IndexFunc(v.boxes, func(b *vendorBox) bool { return b.ID == id })
	if i < 0 {
		fail(w, 404, "sandbox not found")
		return
	}
	b := v.boxes[i]
	switch operation {
	case "GET {id}":
		doc := v.listed(b)
		doc["envdAccessToken"], doc["domain"] = envdToken, "other.example"
		remotetest.Tell(w, 200, doc)
	case "DELETE {id}":
		v.boxes = slices.Delete(v.boxes, i, i+1)
		w.WriteHeader(204)
	case "POST {id}/pause":
		if b.State == "paused" {
			fail(w, 409, "sandbox is already paused")
			return
		}
		b.State = "paused"
		w.WriteHeader(204)
	case "POST {id}/connect":
		status := 200
		if b.State == "paused" {
			b.State, status = "running", 201
		}
		remotetest.Tell(w, status, v.accessTo(b))
	case "POST {id}/timeout":
		var ask struct{ Timeout int64 }
		if b.State == "paused" || json.Unmarshal(body, &ask) != nil {
			fail(w, 404, "sandbox not found")
			return
		}
		b.timeout = ask.Timeout
		w.WriteHeader(204)
	default:
		fail(w, 404, "no route")
	}
}

func (v *vendor) create(w http.ResponseWriter, body []byte) {
	var ask struct {
		TemplateID string            `json:"templateID"`
		Metadata   map[string]string `json:"metadata"`
		Timeout    int64             `json:"timeout"`
	}
	if json.Unmarshal(body, &ask) != nil || ask.TemplateID != "base" {
		fail(w, 404, "template 'x' not found")
		return
	}
	v.made++
	b := &vendorBox{
		ID: "vendor" + strconv.Itoa(
			v.made,
		), State: "running", At: time.Unix(1e9, 0).Add(time.Duration(v.made) * time.Second).UTC(),
		Metadata: ask.Metadata, unlisted: v.lateBy, timeout: ask.Timeout,
	}
	v.boxes = append(v.boxes, b)
	remotetest.Tell(w, 201, v.accessTo(b))
}

func (v *vendor) list(w http.ResponseWriter, r *http.Request) {
	want, err := url.ParseQuery(r.URL.Query().Get("metadata"))
	if err != nil {
		fail(w, 400, "metadata")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("nextToken"))
	const page = 2
	docs := []map[string]any{}
	for i, b := range v.boxes[min(from, len(v.boxes)):] {
		if len(docs) == page {
			w.Header().Set("X-Next-Token", strconv.Itoa(from+i))
			break
		}
		if b.unlisted > 0 {
			b.unlisted--
			continue
		}
		if v.foreign || matches(b, want) {
			docs = append(docs, v.listed(b))
		}
	}
	remotetest.Tell(w, 200, docs)
}

func matches(b *vendorBox, want url.Values) bool {
	for k := range want {
		if b.Metadata[k] != want.Get(k) {
			return false
		}
	}
	return true
}

func (v *vendor) accessTo(b *vendorBox) map[string]any {
	return map[string]any{
		"sandboxID": b.ID, "templateID": "base", "clientID": "c", "envdVersion": v.envd, "envdAccessToken": envdToken,
		"trafficAccessToken": "traffic-" + b.ID,
	}
}

func (v *vendor) listed(b *vendorBox) map[string]any {
	return map[string]any{
		"sandboxID": b.ID, "templateID": "base", "clientID": "c", "envdVersion": v.envd,
		"startedAt": b.At, "endAt": b.At.Add(time.Hour),
		"cpuCount": 1, "memoryMB": 512, "diskSizeMB": 512, "metadata": b.Metadata, "state": b.State,
	}
}

// serveInside is envd, of which it has no more than a shell that says ready.
func (v *vendor) serveInside(w http.ResponseWriter, r *http.Request, path string) {
	v.mu.Lock()
	inside := v.inside
	v.mu.Unlock()
	switch {
	case inside != nil:
		inside(w, r)
	case r.Header.Get("X-Access-Token") != envdToken || r.Header.Get("E2b-Sandbox-Port") != "49983":
		fail(w, 401, "unauthorized")
	default:
		_, handler := processconnect.NewProcessHandler(readyShell{})
		r.URL.Path = path
		handler.ServeHTTP(w, r)
	}
}

type readyShell struct {
	processconnect.UnimplementedProcessHandler
}

func (readyShell) Start(
	_ context.Context,
	_ *connect.Request[process.StartRequest],
	s *connect.ServerStream[process.StartResponse],
) error {
	for _, e := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{
			Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("ready\n")},
		}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := s.Send(&process.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

func fail(w http.ResponseWriter, status int, message string) {
	remotetest.Tell(w, status, map[string]any{"code": status, "message": message})
}

// drop does what a create asks for and keeps the answer.
func (v *vendor) drop(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Error(err)
	}
	v.do(httptest.NewRecorder(), r, "POST /sandboxes", "", body)
}
