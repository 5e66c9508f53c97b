package daytona_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers/daytona"
	"sandyard/providers/remote/remotetest"
)

const apiKey = "dtn_0123456789abcdef0123456789abcdef01234567"

// document is Daytona's own description of the operations.
//
//nolint:gochecknoglobals // a constant
var document = sync.OnceValues(func() (remotetest.Document, error) {
	return remotetest.Load("../../web/testdata/daytona/operations.json")
})

// vendor stands in Daytona's place: sandboxes in memory, whose commands run on this machine, and faults on demand.
type vendor struct {
	t    *testing.T
	http *httptest.Server
	log  testenv.Book

	mu      sync.Mutex
	boxes   []*vendorBox
	made    int
	asked   []string
	faults  map[string]http.HandlerFunc // by method and path, with {id} for a sandbox's; once each
	inside  http.HandlerFunc            // in place of the toolbox
	late    int                         // how many looks do not show a new sandbox running
	ends    string                      // the state that a new sandbox comes to; empty = started
	reason  string                      // why
	foreign bool                        // lists and names show what is somebody else's
	toolbox string                      // the toolbox's URL; empty = here
	sent    []string                    // paths of uploads
	edit    *strings.Replacer           // of scripts before they run; nil = none
}

type vendorBox struct {
	ID, Name, State, Reason string
	At                      time.Time
	Labels                  map[string]string
	body                    map[string]any
	ttl                     int
	late                    int
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{t: t, faults: map[string]http.HandlerFunc{}}
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

func (v *vendor) open() *daytona.Provider {
	v.t.Helper()
	p, err := daytona.New(daytona.Config{
		APIKey: apiKey, URL: v.http.URL + "/api", Fleet: "fleet-1", Snapshot: "base", Target: "us",
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

// change does something with the stand-in while nobody asks it.
func (v *vendor) change(do func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
}

func (v *vendor) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+apiKey {
		fail(w, 401, "Invalid credentials")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := v.document().Request(r, body); err != nil {
		v.t.Errorf("not as Daytona's document has it: %s %s %.1000s: %v", r.Method, r.URL, body, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if rest, ok := strings.CutPrefix(r.URL.Path, "/toolbox/"); ok {
		v.serveInside(w, r, rest, body)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/api")
	operation, id := r.Method+" "+path, ""
	if rest, ok := strings.CutPrefix(path, "/sandbox/"); ok {
		var more string
		if id, more, ok = strings.Cut(rest, "/"); ok {
			operation = r.Method + " {id}/" + more
		} else {
			operation = r.Method + " {id}"
		}
	}
	if strings.Contains(operation, "/ttl/") {
		operation = "POST {id}/ttl"
	}
	v.mu.Lock()
	v.asked = append(v.asked, operation)
	f := v.faults[operation]
	delete(v.faults, operation)
	v.mu.Unlock()
	if f != nil {
		f(w, r)
		return
	}
	v.answer(w, r, operation, id, body)
}

// answer does what Daytona does, and holds the answer to its document.
func (v *vendor) answer(w http.ResponseWriter, r *http.Request, operation, id string, body []byte) {
	rec := httptest.NewRecorder()
	v.do(rec, r, operation, id, body)
	if err := v.document().Answer(r, rec); err != nil {
		v.t.Errorf("not as Daytona's document has it: %s is answered %d %s: %v", operation, rec.Code, rec.Body, err)
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
	case "POST /sandbox":
		v.create(w, body)
		return
	case "GET /sandbox":
		v.list(w, r)
		return
	}
	i := slices.IndexFunc(v.boxes, func(b *vendorBox) bool { return b.ID == id || b.Name == id })
	if i < 0 {
		fail(w, 404, "Sandbox with ID or name "+id+" not found")
		return
	}
	b := v.boxes[i]
	switch operation {
	case "GET {id}":
		if b.State == "creating" {
			if b.late--; b.late < 0 {
				b.State, b.Reason = v.ends, v.reason
			}
		}
	case "DELETE {id}":
		v.boxes = slices.Delete(v.boxes, i, i+1)
		b.State = "destroying"
	case "POST {id}/stop":
		if b.State != "started" {
			fail(w, 400, "Sandbox is not started")
			return
		}
		b.State = "stopped"
	case "POST {id}/start":
		b.State = "started"
	case "POST {id}/ttl":
		b.ttl, _ = strconv.Atoi(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	case "GET {id}/ports/8000/preview-url":
		remotetest.Tell(w, 200, map[string]any{"sandboxId": b.ID, "url": v.http.URL + "/port", "token": "previewtoken0123456789"})
		return
	default:
		fail(w, 404, "Cannot "+operation)
		return
	}
	remotetest.Tell(w, 200, v.describe(b))
}

func (v *vendor) create(w http.ResponseWriter, body []byte) {
	var ask struct {
		Name     string            `json:"name"`
		Snapshot string            `json:"snapshot"`
		Labels   map[string]string `json:"labels"`
		TTL      int               `json:"ttlMinutes"`
		Build    any               `json:"buildInfo"`
	}
	b := &vendorBox{}
	if json.Unmarshal(body, &ask) != nil || json.Unmarshal(body, &b.body) != nil {
		fail(w, 400, "Bad Request")
		return
	}
	if ask.Snapshot != "base" && ask.Build == nil {
		fail(w, 400, "Snapshot "+ask.Snapshot+" not found. Did you add it through the Daytona Dashboard?")
		return
	}
	if slices.ContainsFunc(v.boxes, func(b *vendorBox) bool { return b.Name == ask.Name }) {
		fail(w, 409, "Sandbox with name "+ask.Name+" already exists")
		return
	}
	v.made++
	b.ID, b.Name, b.State, b.late = "vendor"+strconv.Itoa(v.made), ask.Name, "creating", v.late
	b.Labels, b.ttl = ask.Labels, ask.TTL
	b.At = time.Unix(1e9, 0).Add(time.Duration(v.made) * time.Second).UTC()
	if v.ends == "" {
		v.ends = "started"
	}
	v.boxes = append(v.boxes, b)
	remotetest.Tell(w, 200, v.describe(b))
}

func (v *vendor) list(w http.ResponseWriter, r *http.Request) {
	want := map[string]string{}
	if text := r.URL.Query().Get("labels"); text != "" && json.Unmarshal([]byte(text), &want) != nil {
		fail(w, 400, "labels")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	const page = 2
	items := []any{}
	var next *string
	for i, b := range v.boxes[min(from, len(v.boxes)):] {
		if len(items) == page {
			text := strconv.Itoa(from + i)
			next = &text
			break
		}
		matches := true
		for k, value := range want {
			matches = matches && b.Labels[k] == value
		}
		if matches || v.foreign {
			doc := v.describe(b)
			delete(doc, "env")
			items = append(items, doc)
		}
	}
	remotetest.Tell(w, 200, map[string]any{"items": items, "nextCursor": next})
}

func (v *vendor) describe(b *vendorBox) map[string]any {
	doc := map[string]any{
		"id": b.ID, "name": b.Name, "state": b.State, "labels": b.Labels, "createdAt": b.At,
		"organizationId": "o", "user": "daytona", "env": map[string]string{}, "public": false,
		"networkBlockAll": true, "target": "us", "cpu": 1, "gpu": 0, "memory": 1, "disk": 3,
		"toolboxProxyUrl": v.http.URL + "/toolbox",
	}
	if v.toolbox != "" {
		doc["toolboxProxyUrl"] = v.toolbox
	}
	if b.Reason != "" {
		doc["errorReason"] = b.Reason
	}
	if b.ttl > 0 {
		doc["autoDestroyAt"] = b.At.Add(time.Duration(b.ttl) * time.Minute)
	}
	return doc
}

func fail(w http.ResponseWriter, status int, message string) {
	remotetest.Tell(w, status, map[string]any{
		"statusCode": status, "message": message, "error": http.StatusText(status), "path": "/", "timestamp": time.Now(),
	})
}

// drop does what a create asks for and keeps the answer.
func (v *vendor) drop(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Error(err)
	}
	v.do(httptest.NewRecorder(), r, "POST /sandbox", "", body)
}
