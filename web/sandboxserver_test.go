package web_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

// calling is a rig with a worker, whose calls are as a client of the sandbox server makes them.
type calling struct{ *rig }

func newCalling(t *testing.T, change ...func(*web.Config)) calling {
	t.Helper()
	r := calling{newRig(t, change...)}
	r.work()
	return r
}

// ask calls with the key as the password of the server's URL.
func (r calling) ask(method, path string, body any) answer {
	r.t.Helper()
	return r.call(method, path, body, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("any:"+r.key)))
}

func (r calling) create() string {
	r.t.Helper()
	return r.ask("POST", "/sandboxes/create", map[string]any{"user_id": "user-1", "template_id": nil}).want(r.t, 200).text("sandbox_id")
}

// exactly checks the whole body of an answer.
func (a answer) exactly(t *testing.T, status int, body string) {
	t.Helper()
	if a.want(t, status); a.raw != body {
		t.Errorf("answered %s, want %s", a.raw, body)
	}
}

// detail checks an error in this contract's form.
func (a answer) detail(t *testing.T, status int, code, part string) {
	t.Helper()
	text, _ := json.Marshal(a.get("detail"))
	if a.status != status || a.text("code") != code || !strings.Contains(string(text), part) || a.text("request_id") == "" || len(a.body) != 3 {
		t.Errorf("answered %d %s, want %d %s with %q", a.status, a.raw, status, code, part)
	}
}

func TestSandboxServerLife(t *testing.T) {
	t.Parallel()
	r := newCalling(t)
	id := r.create()
	native := func() answer { return r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200) }
	if box := native(); box.get("labels.user_id") != "user-1" || box.get("timeout_seconds") != 3600.0 || box.get("auto_resume") != true || box.get("idle_timeout_seconds") != 0.0 {
		t.Errorf("as an ordinary sandbox: %s", box.raw)
	}
	on := func(fields ...any) map[string]any {
		body := map[string]any{"sandbox_id": id}
		for i := 0; i < len(fields); i += 2 {
			body[fields[i].(string)] = fields[i+1]
		}
		return body
	}
	r.ask("POST", "/sandboxes/run-command", on("command", "fake:stderr b; fake:stdout a; fake:exit 3", "background", false)).exactly(t, 200, `{"output":"ab"}`)
	r.ask("POST", "/sandboxes/run-command", on("command", "fake:pwd")).exactly(t, 200, `{"output":"/home/user"}`)
	r.ask("POST", "/sandboxes/run-command", on("command", "fake:sleep 1h", "background", true)).exactly(t, 200, `{"output":""}`)
	for path, content := range map[string]string{"/home/user/x": "ä\n", "new/dir/y": "relative", "empty": ""} {
		r.ask("POST", "/sandboxes/write-file", on("path", path, "content", content)).exactly(t, 200, `{"success":true}`)
		if got := r.ask("POST", "/sandboxes/read-file", on("path", path)).want(t, 200); got.get("content") != content || len(got.body) != 1 {
			t.Errorf("%s: read %s, want %q", path, got.raw, content)
		}
	}
	r.ask("POST", "/sandboxes/timeout", on("timeout", 7200)).exactly(t, 200, `{"success":true}`)
	if box := native(); box.get("timeout_seconds") != 7200.0 {
		t.Errorf("after timeout: %s", box.raw)
	}
	r.call("POST", "/v1/sandboxes/"+id+"/pause?wait=60s", nil).want(t, 200)
	r.ask("GET", "/sandboxes/"+id+"/status", nil).exactly(t, 200,
		fmt.Sprintf(`{"success":true,"sandbox_id":%q,"status":"paused","provider_sandbox_id":%q,"message":"the sandbox is paused"}`, id, id))
	r.ask("POST", "/sandboxes/connect", on()).exactly(t, 200, `{"success":true}`)
	if box := native(); box.get("state") != "running" || box.get("timeout_seconds") != 3600.0 {
		t.Errorf("after connect: %s", box.raw)
	}
	for range 2 { // also when it is gone
		r.ask("DELETE", "/sandboxes/"+id, nil).exactly(t, 200, `{"success":true}`)
	}
	for path, body := range map[string]any{
		"/connect": on(), "/run-command": on("command", "fake:pwd"), "/expose-port": on("port", 80), "/write-file": on("path", "x", "content", ""),
		"/read-file": on("path", "x"), "/timeout": on("timeout", 60),
	} {
		r.ask("POST", "/sandboxes"+path, body).detail(t, 404, "not_found", "there is no such sandbox")
	}
	r.ask("GET", "/sandboxes/"+id+"/status", nil).detail(t, 404, "not_found", "create another one")
}

func TestSandboxServerRefusals(t *testing.T) {
	t.Parallel()
	r := newCalling(t)
	for _, header := range []string{"", "Basic " + base64.StdEncoding.EncodeToString([]byte("any:sy_"+strings.Repeat("0", 40))), "Basic %"} {
		r.call("POST", "/sandboxes/create", map[string]any{"user_id": "a"}, "Authorization", header).detail(t, 401, "unauthorized", "API key")
	}
	create := func(body any) answer { return r.ask("POST", "/sandboxes/create", body) }
	create(map[string]any{}).detail(t, 422, "invalid_request", `{"loc":["body","user_id"],"msg":"is missing","type":"value_error"}`)
	create(map[string]any{"user_id": nil}).detail(t, 422, "invalid_request", "is missing")
	create(map[string]any{"user_id": 7}).detail(t, 422, "invalid_request", "must be a string, not a JSON number")
	create(map[string]any{"user_id": strings.Repeat("x", 300)}).detail(t, 422, "invalid_request", `"user_id"`)
	create(map[string]any{"user_id": "a", "template_id": "vg6mdf4wgu5qoijamwb5"}).detail(t, 422, "invalid_request", `["body","template_id"]`)
	create("[]").detail(t, 422, "invalid_request", "must be a JSON object")
	create(`{"user_id": "a"`).detail(t, 422, "invalid_json", "the middle of a JSON value")
	create("{\"user_id\": \"\xff\"}").detail(t, 422, "invalid_utf8", "UTF-8")
	r.ask("POST", "/sandboxes/run-command", map[string]any{"sandbox_id": "nobody", "command": "x"}).detail(t, 404, "not_found", "no such sandbox")
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("refused requests left %s", rows)
	}
	id := r.create()
	on := func(path string, fields map[string]any) answer {
		fields["sandbox_id"] = id
		return r.ask("POST", "/sandboxes"+path, fields)
	}
	on("/run-command", map[string]any{"command": ""}).detail(t, 422, "invalid_request", "command")
	on("/run-command", map[string]any{"command": "fake:pwd", "background": "yes"}).detail(t, 422, "invalid_request", "true or false")
	on("/write-file", map[string]any{"path": "x"}).detail(t, 422, "invalid_request", `["body","content"]`)
	on("/write-file", map[string]any{"path": "/etc/x", "content": ""}).detail(t, 422, "invalid_path", "")
	on("/read-file", map[string]any{"path": "nothing"}).detail(t, 404, "file_not_found", "")
	on("/expose-port", map[string]any{"port": 70000}).detail(t, 422, "invalid_request", "65535")
	on("/expose-port", map[string]any{"port": 80}).detail(t, 422, "invalid_request", "no edge")
	for _, seconds := range []any{0, -5, 86401} {
		on("/timeout", map[string]any{"timeout": seconds}).detail(t, 422, "invalid_request", "between 1 and 86400 seconds")
	}
	r.call("POST", "/v1/jobs?wait=60s", map[string]any{"sandbox_id": id, "kind": "write", "args": map[string]any{"path": "bytes", "content": "/w==", "encoding": "base64"}}).want(t, 200)
	on("/read-file", map[string]any{"path": "bytes"}).detail(t, 422, "not_text", "/files/raw")
	if out := on("/run-command", map[string]any{"command": "fake:fill 1100000"}).want(t, 200).text("output"); !strings.HasSuffix(out, "[output cut off after 1048576 bytes; write it to a file and read that]\n") {
		t.Errorf("long output ends with %q", out[max(0, len(out)-100):])
	}
	key := must(r.store.CreateKey(t.Context(), "default", "metrics only", []string{models.ScopeOperator}))(t)
	r.call("GET", "/sandboxes/"+id+"/status", nil, "Authorization", "Bearer "+key).detail(t, 403, "scope_missing", "sandboxes")
}

// TestSandboxServerJoins: a command that takes longer than its caller waits goes on, and the same call finds it.
func TestSandboxServerJoins(t *testing.T) {
	t.Parallel()
	r := newCalling(t, func(c *web.Config) { c.Calls.Patience = 2 * time.Second })
	id := r.create()
	run := func(command string) answer {
		return r.ask("POST", "/sandboxes/run-command", map[string]any{"sandbox_id": id, "command": command})
	}
	const long = "fake:append log a; fake:sleep 8s; fake:stdout done"
	a := run(long)
	a.detail(t, 408, "still_running", "send the same request again")
	for tries := 0; a.status == http.StatusRequestTimeout && tries < 100; tries++ {
		a = run(long)
	}
	a.exactly(t, 200, `{"output":"done"}`)
	starts := func(want string) {
		t.Helper()
		r.ask("POST", "/sandboxes/read-file", map[string]any{"sandbox_id": id, "path": "log"}).exactly(t, 200, fmt.Sprintf(`{"content":%q}`, want))
	}
	starts("a")
	run("fake:append log b").want(t, 200)
	run("fake:append log b").want(t, 200)
	starts("abb")
	// One that ended when nobody waited is not started again: its end is the answer.
	const unseen = "fake:append log c; fake:sleep 3s; fake:stdout seen"
	run(unseen).detail(t, 408, "still_running", "")
	testenv.Eventually(t, "the command's end", func() bool {
		list := r.call("GET", "/v1/jobs?kind=exec&state=running", nil).want(t, 200)
		jobs, _ := list.get("jobs").([]any)
		return len(jobs) == 0
	})
	run(unseen).exactly(t, 200, `{"output":"seen"}`)
	starts("abbc")
	a = run(unseen) // its end has been seen, so this is another one
	a.detail(t, 408, "still_running", "")
	starts("abbcc")
}

// TestSandboxServerJoinsAfterARestart: a server that ends answers its callers early; they find their command at the next
// one, at once.
func TestSandboxServerJoinsAfterARestart(t *testing.T) {
	t.Parallel()
	r := newCalling(t)
	id := r.create()
	run := func(r calling) answer {
		return r.ask("POST", "/sandboxes/run-command", map[string]any{"sandbox_id": id, "command": "fake:sleep 5s; fake:stdout done"})
	}
	early := make(chan answer, 1)
	go func() { early <- run(r) }()
	testenv.Eventually(t, "the command's start", func() bool {
		jobs, _ := r.call("GET", "/v1/jobs?kind=exec&state=running", nil).want(t, 200).get("jobs").([]any)
		return len(jobs) == 1
	})
	next := calling{newRigOn(t, r.dsn)}
	next.key = r.key
	r.shutdown()
	a := <-early
	a.detail(t, 408, "still_running", "send the same request again")
	run(next).exactly(t, 200, `{"output":"done"}`)
	if jobs, _ := next.call("GET", "/v1/jobs?kind=exec", nil).want(t, 200).get("jobs").([]any); len(jobs) != 1 {
		t.Errorf("the two calls made %d jobs, want 1", len(jobs))
	}
}

// TestSandboxServerBesideE2B: what both know is told apart by the way in which the key comes.
func TestSandboxServerBesideE2B(t *testing.T) {
	t.Parallel()
	r := newCalling(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	r.e2b = false // answers of the sandbox server do not conform to E2B's document
	r.ask("DELETE", "/sandboxes/sbnone", nil).exactly(t, 200, `{"success":true}`)
	if a := r.call("DELETE", "/sandboxes/sbnone", nil); a.status != 404 || a.get("code") != 404.0 {
		t.Errorf("E2B's delete of nothing: %d %s", a.status, a.raw)
	}
	id := r.create()
	r.call("DELETE", "/sandboxes/"+id, nil, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("a:b"))).detail(t, 401, "unauthorized", "")
	r.call("GET", "/sandboxes/"+id, nil).want(t, 200)
	r.call("DELETE", "/sandboxes/"+id, nil).want(t, 204)
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	other := must(r.store.CreateKey(t.Context(), "other", "k", []string{models.ScopeSandboxes}))(t)
	id = r.create()
	foreign := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+other))}
	r.call("DELETE", "/sandboxes/"+id, nil, foreign...).exactly(t, 200, `{"success":true}`)
	r.call("GET", "/sandboxes/"+id+"/status", nil, foreign...).detail(t, 404, "not_found", "")
	if a := r.ask("GET", "/sandboxes/"+id+"/status", nil).want(t, 200); a.text("status") != "running" {
		t.Errorf("after another tenant's delete: %s", a.raw)
	}
}

// TestSandboxServerWithoutKeys: a listener of its own works for one tenant, and has no other routes.
func TestSandboxServerWithoutKeys(t *testing.T) {
	t.Parallel()
	r := newCalling(t, func(c *web.Config) { c.Calls.OpenTenant = "default" })
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- r.server.ListenOpen(l) }()
	t.Cleanup(func() {
		r.shutdown()
		check(t, <-served)
	})
	closed := r.url
	r.url = "http://" + l.Addr().String()
	none := []string{"Authorization", ""}
	id := r.call("POST", "/sandboxes/create", map[string]any{"user_id": "a"}, none...).want(t, 200).text("sandbox_id")
	r.call("POST", "/sandboxes/run-command", map[string]any{"sandbox_id": id, "command": "fake:stdout x"}, none...).exactly(t, 200, `{"output":"x"}`)
	for _, path := range []string{"/v1/sandboxes", "/sandboxes", "/metrics", "/monitor", "/docs"} {
		r.call("GET", path, nil).want(t, 404)
	}
	r.call("DELETE", "/sandboxes/"+id, nil, none...).exactly(t, 200, `{"success":true}`)
	r.url = closed
	if a := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200); a.text("state") != "deleted" {
		t.Errorf("in the API: %s", a.raw)
	}
	r.call("POST", "/sandboxes/create", map[string]any{"user_id": "a"}, none...).detail(t, 401, "unauthorized", "no API key")
}

// TestSandboxServerDocument: the published document has every route of the contract.
func TestSandboxServerDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	paths, _ := r.call("GET", "/openapi/sandbox-server.json", nil, "Authorization", "").want(t, 200).get("paths").(map[string]any)
	n := 0
	for path, item := range paths {
		for method := range item.(map[string]any) {
			n++
			at := strings.ReplaceAll(path, "{id}", "sbnone")
			r.call(strings.ToUpper(method), at, nil, "Authorization", "Basic eDp4").detail(t, 401, "unauthorized", "")
		}
	}
	if n != 9 {
		t.Errorf("the document has %d operations, want 9: %v", n, paths)
	}
}
