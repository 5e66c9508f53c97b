package runloop_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers/remote/remotetest"
	"sandyard/providers/runloop"
)

const apiKey = "ak_0123456789abcdef0123456789abcdef01234567"

// document describes the operations.
//
//nolint:gochecknoglobals // a constant
var document = sync.OnceValues(func() (remotetest.Document, error) {
	return remotetest.Load("testdata/operations.yaml")
})

// vendor stands in Runloop's place: devboxes in memory, whose commands run on this machine, and faults on demand.
type vendor struct {
	t    *testing.T
	http *httptest.Server
	log  testenv.Book

	mu       sync.Mutex
	boxes    []*vendorBox
	policies []map[string]any
	made     int
	asked    []string
	bodies   []map[string]any            // of creates
	faults   map[string]http.HandlerFunc // by method and path, with {id} for a devbox's; once each
	late     int                         // how many looks do not show a new devbox running
	ends     string                      // the status that a new devbox comes to; empty = running
	reason   string                      // why
	lags     int                         // how many lists do not show a new devbox
	running  map[string]any              // an execution that ends when it is waited for
	sent     []string                    // paths of uploads
}

type vendorBox struct {
	ID, Name, Status, Reason string
	At                       int64
	Metadata                 map[string]string
	Launch                   any
	tunnel                   map[string]any
	late, lags               int
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{t: t, faults: map[string]http.HandlerFunc{}, ends: "running"}
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

func (v *vendor) open() *runloop.Provider {
	v.t.Helper()
	p, err := runloop.New(runloop.Config{
		APIKey: apiKey, URL: v.http.URL, Tunnel: strings.Replace(v.http.URL, "127.0.0.1", "tunnel.localhost", 1),
		Fleet: "fleet-1", Blueprint: "base",
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
	v.change(func() { v.faults[operation] = f })
}

// always lets all calls of an operation be answered otherwise, until there is another fault for it.
func (v *vendor) always(operation string, f http.HandlerFunc) {
	v.fault(operation, func(w http.ResponseWriter, r *http.Request) {
		v.always(operation, f)
		f(w, r)
	})
}

// calls returns what was asked since the last time.
func (v *vendor) calls() (asked []string) {
	v.change(func() { asked, v.asked = v.asked, nil })
	return asked
}

// ids are those of the devboxes that are not at their end.
func (v *vendor) ids() (ids []string) {
	v.change(func() {
		for _, b := range v.boxes {
			if b.Status != "shutdown" {
				ids = append(ids, b.ID)
			}
		}
	})
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
		fail(w, 401, "Invalid API key")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := v.document().Request(r, body); err != nil {
		v.t.Errorf("not as the document has it: %s %s %.1000s: %v", r.Method, r.URL, body, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	operation, id := r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1"), ""
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/devboxes/"); ok {
		var more string
		if id, more, ok = strings.Cut(rest, "/"); ok {
			more = "/" + more
		}
		operation = r.Method + " {id}" + more
	}
	var f http.HandlerFunc
	v.change(func() {
		v.asked = append(v.asked, operation)
		f = v.faults[operation]
		delete(v.faults, operation)
	})
	if f != nil {
		f(w, r)
		return
	}
	rec := httptest.NewRecorder()
	v.do(rec, r, operation, id, body)
	if err := v.document().Answer(r, rec); err != nil {
		v.t.Errorf("not as the document has it: %s is answered %d %s: %v", operation, rec.Code, rec.Body, err)
	}
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// do does what Runloop does.
func (v *vendor) do(w http.ResponseWriter, r *http.Request, operation, id string, body []byte) {
	switch operation {
	case "POST {id}/execute":
		v.execute(w, r, id, body)
		return
	case "POST {id}/upload_file":
		v.upload(w, r)
		return
	case "POST {id}/download_file":
		v.download(w, body)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch operation {
	case "POST /devboxes":
		v.create(w, body)
	case "GET /devboxes":
		v.list(w, r)
	case "GET /network-policies":
		remotetest.Tell(w, 200, map[string]any{"network_policies": append([]map[string]any{}, v.policies...), "has_more": false})
	case "POST /network-policies":
		v.policy(w, body)
	default:
		i := slices.IndexFunc(v.boxes, func(b *vendorBox) bool { return b.ID == id })
		if i < 0 {
			fail(w, 404, "Devbox "+id+" not found")
			return
		}
		v.ofBox(w, operation, v.boxes[i])
	}
}

func (v *vendor) ofBox(w http.ResponseWriter, operation string, b *vendorBox) {
	change := func(from, to string) bool {
		if b.Status != from {
			fail(w, 400, "Devbox is "+b.Status)
			return false
		}
		b.Status = to
		return true
	}
	switch operation {
	case "GET {id}":
		if b.late--; b.late < 0 {
			next := map[string]string{"provisioning": v.ends, "suspending": "suspended", "resuming": "running"}
			if to, ok := next[b.Status]; ok {
				b.Status, b.Reason = to, v.reason
			}
		}
	case "POST {id}/shutdown":
		if b.Status == "shutdown" {
			fail(w, 400, "Devbox is shutdown")
			return
		}
		b.Status = "shutdown"
	case "POST {id}/suspend":
		if !change("running", "suspending") {
			return
		}
	case "POST {id}/resume":
		if !change("suspended", "resuming") {
			return
		}
	case "POST {id}/enable_tunnel":
		b.tunnel = map[string]any{
			"auth_mode": "authenticated", "create_time_ms": 1, "http_keep_alive": true, "wake_on_http": false,
			"tunnel_key": "key" + b.ID[len("dbx_"):], "auth_token": "tunneltoken0123456789",
		}
		remotetest.Tell(w, 200, b.tunnel)
		return
	default:
		v.wait(w, operation)
		return
	}
	remotetest.Tell(w, 200, v.describe(b))
}

func (v *vendor) create(w http.ResponseWriter, body []byte) {
	var ask struct {
		Name     string            `json:"name"`
		Named    string            `json:"blueprint_name"`
		Metadata map[string]string `json:"metadata"`
		Launch   any               `json:"launch_parameters"`
	}
	var all map[string]any
	if json.Unmarshal(body, &ask) != nil || json.Unmarshal(body, &all) != nil {
		fail(w, 400, "Bad Request")
		return
	}
	if ask.Named != "" && ask.Named != "base" {
		fail(w, 404, "No blueprint is named "+ask.Named)
		return
	}
	v.made++
	v.bodies = append(v.bodies, all)
	b := &vendorBox{
		ID: "dbx_" + strconv.Itoa(v.made), Name: ask.Name, Status: "provisioning", late: v.late, lags: v.lags,
		Metadata: ask.Metadata, Launch: ask.Launch, At: 1e12 + int64(v.made),
	}
	v.boxes = append(v.boxes, b)
	remotetest.Tell(w, 200, v.describe(b))
}

func (v *vendor) list(w http.ResponseWriter, r *http.Request) {
	const page = 2
	query := r.URL.Query()
	items, more, from := []any{}, false, query.Get("starting_after") == ""
	for _, b := range v.boxes {
		switch {
		case !from:
			from = b.ID == query.Get("starting_after")
		case query.Get("status") != "" && query.Get("status") != b.Status:
		case b.lags > 0:
			b.lags--
		case len(items) == page:
			more = true
		default:
			items = append(items, v.describe(b))
		}
	}
	remotetest.Tell(w, 200, map[string]any{"devboxes": items, "has_more": more})
}

func (v *vendor) policy(w http.ResponseWriter, body []byte) {
	p := map[string]any{}
	if json.Unmarshal(body, &p) != nil {
		fail(w, 400, "Bad Request")
		return
	}
	for _, other := range v.policies {
		if other["name"] == p["name"] {
			fail(w, 409, "the name exists")
			return
		}
	}
	egress := map[string]any{
		"allow_agent_gateway": false, "allow_mcp_gateway": false, "allowed_cidrs": []any{},
		"allow_all": p["allow_all"], "allow_devbox_to_devbox": p["allow_devbox_to_devbox"],
		"allow_runloop_mirrors": p["allow_runloop_mirrors"], "allowed_hostnames": p["allowed_hostnames"],
	}
	made := map[string]any{
		"id": "npol_" + strconv.Itoa(len(v.policies)+1), "name": p["name"], "create_time_ms": 1, "update_time_ms": 1,
		"egress": egress,
	}
	v.policies = append(v.policies, made)
	remotetest.Tell(w, 200, made)
}

func (v *vendor) describe(b *vendorBox) map[string]any {
	doc := map[string]any{
		"id": b.ID, "name": b.Name, "status": b.Status, "metadata": b.Metadata, "create_time_ms": b.At, "end_time_ms": nil,
		"capabilities": []string{}, "launch_parameters": b.Launch, "state_transitions": []any{},
	}
	if b.Reason != "" {
		doc["failure_reason"] = b.Reason
	}
	if b.tunnel != nil {
		doc["tunnel"] = b.tunnel
	}
	return doc
}

func fail(w http.ResponseWriter, status int, message string) {
	remotetest.Tell(w, status, map[string]any{"message": message})
}

// drop does what a create asks for and keeps the answer.
func (v *vendor) drop(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Error(err)
	}
	v.do(httptest.NewRecorder(), r, "POST /devboxes", "", body)
}

// execute runs a line on this machine. It tells of a line that holds "later" only when it is waited for.
func (v *vendor) execute(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	var ask struct {
		Command string `json:"command"`
		ID      string `json:"command_id"`
	}
	if json.Unmarshal(body, &ask) != nil || ask.ID == "" {
		fail(w, 400, "bad command")
		return
	}
	status := ""
	v.change(func() {
		for _, b := range v.boxes {
			if b.ID == id {
				status = b.Status
			}
		}
	})
	if status != "running" {
		fail(w, 400, "Devbox is not running")
		return
	}
	if strings.Contains(scriptOf(v.t, ask.Command), "'/workspace'") { // which nobody makes on this machine
		ask.Command = "echo sandyard-begin; echo ready | base64; echo sandyard-end"
	}
	cmd := exec.CommandContext(r.Context(), "bash", "-c", ask.Command)
	cmd.Dir = "/"
	out, _ := cmd.Output() // how it ends is not looked at
	done := map[string]any{
		"devbox_id": id, "execution_id": "exec" + ask.ID, "status": "completed", "exit_status": cmd.ProcessState.ExitCode(),
		"stdout": last(string(out), 100), "stderr": "", "stdout_truncated": strings.Count(string(out), "\n") > 100,
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running == nil {
		remotetest.Tell(w, 200, done)
		return
	}
	v.running = done
	remotetest.Tell(w, 200, map[string]any{"devbox_id": id, "execution_id": "exec" + ask.ID, "status": "running"})
}

// scriptOf is the script that a command line holds.
func scriptOf(t *testing.T, line string) string {
	t.Helper()
	_, rest, _ := strings.Cut(line, "printf %s ")
	code, _, _ := strings.Cut(rest, "|")
	text, err := base64.StdEncoding.DecodeString(code)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// wait answers first that a command runs on.
func (v *vendor) wait(w http.ResponseWriter, operation string) {
	done := v.running
	if done == nil || operation != "POST {id}/executions/"+done["execution_id"].(string)+"/wait_for_status" {
		fail(w, 404, "Not Found")
		return
	}
	if done["waited"] == nil {
		done["waited"] = true
		fail(w, 408, "timed out")
		return
	}
	delete(done, "waited")
	remotetest.Tell(w, 200, done)
}

func last(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines-1):], "")
}

func (v *vendor) upload(w http.ResponseWriter, r *http.Request) {
	err := r.ParseMultipartForm(1 << 20)
	path := r.FormValue("path")
	if err == nil && !strings.HasPrefix(path, "/tmp/.sandyard-") {
		err = errors.New("the path is " + path)
	}
	if err != nil {
		fail(w, 400, err.Error())
		return
	}
	from, _, err := r.FormFile("file")
	if err == nil {
		var data []byte
		if data, err = io.ReadAll(from); err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
	}
	if err != nil {
		v.t.Error(err)
	}
	v.change(func() { v.sent = append(v.sent, path) })
	remotetest.Tell(w, 200, map[string]any{})
}

func (v *vendor) download(w http.ResponseWriter, body []byte) {
	var ask struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(body, &ask) != nil {
		fail(w, 400, "Bad Request")
		return
	}
	data, err := os.ReadFile(ask.Path)
	if err != nil {
		fail(w, 404, "File "+ask.Path+" not found")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(data)
}
