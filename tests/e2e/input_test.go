package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
)

func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	exec, write := "/v1/sandboxes/"+box+"/exec", "/v1/sandboxes/"+box+"/files/write"
	for name, c := range map[string]struct {
		to     string // POST unless it names a method
		body   any
		status int
		code   string
		says   string // somewhere in the document
	}{
		"unknown template":   {to: "/v1/sandboxes", body: object{"template": "cobol"}, status: 422, code: "invalid_request", says: "body.template"},
		"unknown provider":   {to: "/v1/sandboxes", body: object{"provider": "mars"}, status: 422, code: "invalid_request", says: "body.provider"},
		"template and image": {to: "/v1/sandboxes", body: object{"template": "python", "image": image}, status: 422, code: "invalid_request", says: "body.image"},
		"negative lifetime":  {to: "/v1/sandboxes", body: object{"timeout_seconds": -5}, status: 422, code: "invalid_request", says: "body.timeout_seconds"},
		"huge lifetime":      {to: "/v1/sandboxes", body: object{"timeout_seconds": 1e12}, status: 422, code: "invalid_request", says: "86400"},
		"huge memory":        {to: "/v1/sandboxes", body: object{"memory_mb": 1 << 40}, status: 422, code: "invalid_request", says: "body.memory_mb"},
		"bad label":          {to: "/v1/sandboxes", body: object{"labels": object{"a b": "c"}}, status: 422, code: "invalid_request", says: "labels"},
		"bad callback":       {to: "/v1/sandboxes", body: object{"callback_url": "file:///etc/passwd"}, status: 422, code: "invalid_request", says: "body.callback_url"},

		"negative timeout":  {to: exec, body: object{"command": "true", "timeout_seconds": -1}, status: 422, code: "invalid_request", says: "body.timeout_seconds"},
		"huge timeout":      {to: exec, body: object{"command": "true", "timeout_seconds": 1e9}, status: 422, code: "invalid_request", says: "body.timeout_seconds"},
		"timeout no float":  {to: exec, body: `{"command": "true", "timeout_seconds": 1e999}`, status: 422, code: "invalid_request", says: "1e999 is out of range"},
		"timeout no number": {to: exec, body: object{"command": "true", "timeout_seconds": "5"}, status: 422, code: "invalid_request", says: "body.timeout_seconds"},
		"no command":        {to: exec, body: object{}, status: 422, code: "invalid_request", says: "body.command"},
		"two commands":      {to: exec, body: object{"command": "true", "argv": []string{"true"}}, status: 422, code: "invalid_request", says: "body.command"},
		"unknown field":     {to: exec, body: object{"command": "true", "comand": "false"}, status: 422, code: "invalid_request", says: "comand"},
		"bad base64":        {to: exec, body: object{"command": "cat", "stdin": "*", "stdin_encoding": "base64"}, status: 422, code: "invalid_request", says: "body.stdin"},
		"NUL in command":    {to: exec, body: object{"command": "a\x00b"}, status: 422, code: "invalid_request", says: "NUL"},
		"huge max output":   {to: exec, body: object{"command": "true", "max_output_bytes": 1 << 40}, status: 422, code: "invalid_request", says: "body.max_output_bytes"},
		"bad priority":      {to: exec, body: object{"command": "true", "priority": 1000}, status: 422, code: "invalid_request", says: "body.priority"},

		"NUL in path":    {to: write, body: object{"path": "a\x00b"}, status: 422, code: "invalid_request", says: "body.path"},
		"over-long path": {to: write, body: object{"path": strings.Repeat("a/", 4000)}, status: 422, code: "invalid_request", says: "4096"},
		"no path":        {to: write, body: object{"content": "x"}, status: 422, code: "invalid_request", says: "path"},
		"bad mode":       {to: write, body: object{"path": "a", "mode": "rwx"}, status: 422, code: "invalid_request", says: "body.mode"},

		"half a JSON value": {to: exec, body: `{"command": "tr`, status: 400, code: "invalid_json", says: "line 1"},
		"two JSON values":   {to: exec, body: `{} {}`, status: 400, code: "invalid_json", says: "more than one"},
		"no UTF-8":          {to: exec, body: "{\"command\": \"\xff\"}", status: 400, code: "invalid_utf8", says: "base64"},
		"no object":         {to: exec, body: `["true"]`, status: 422, code: "invalid_request"},
		"no body":           {to: exec, status: 400, code: "body_missing"},
		"oversized body":    {to: write, body: object{"path": "a", "content": strings.Repeat("x", 17<<20)}, status: 413, code: "body_too_large", says: `"max":16777216`},

		"unknown kind":       {to: "/v1/jobs", body: object{"sandbox_id": box, "kind": "fly"}, status: 422, code: "invalid_request", says: "body.kind"},
		"unknown arg":        {to: "/v1/jobs", body: object{"sandbox_id": box, "kind": "read", "args": object{"pfad": "a"}}, status: 422, code: "invalid_request", says: "pfad"},
		"bad wait":           {to: exec + "?wait=soon", body: object{"command": "true"}, status: 422, code: "invalid_request", says: "query.wait"},
		"bad cursor":         {to: "GET /v1/sandboxes?cursor=1", status: 422, code: "invalid_request", says: "query.cursor"},
		"bad state":          {to: "GET /v1/sandboxes?state=happy", status: 422, code: "invalid_request", says: "query.state"},
		"unknown sandbox":    {to: "/v1/sandboxes/sbnone/exec", body: object{"command": "true"}, status: 404, code: "not_found"},
		"unknown to delete":  {to: "DELETE /v1/sandboxes/sbnone", status: 404, code: "not_found"},
		"unknown job":        {to: "GET /v1/jobs/job_none", status: 404, code: "not_found"},
		"unknown to cancel":  {to: "/v1/jobs/job_none/cancel", status: 404, code: "not_found"},
		"unknown route":      {to: "GET /v1/sandwiches", status: 404, code: "route_not_found"},
		"unsupported method": {to: "PUT /v1/sandboxes", body: object{}, status: 405, code: "method_not_allowed"},
	} {
		method, path, named := strings.Cut(c.to, " ")
		if !named {
			method, path = "POST", c.to
		}
		a := r.call(method, path, c.body).problem(t, c.status, c.code)
		if !strings.Contains(a.raw, c.says) {
			t.Errorf("%s: no %q in %s", name, c.says, a.raw)
		}
	}
	r.call("POST", exec, `{"command": "true"}`, "Content-Type", "text/plain").problem(t, 415, "unsupported_media_type")
	stranger := *r.caller
	for _, key := range []string{"", "sy_0000", "nonsense"} {
		stranger.key = key
		stranger.call("GET", "/v1/sandboxes", nil).problem(t, 401, "unauthorized")
	}
	if got := r.count("queued") + r.count("succeeded"); got != 1 {
		t.Errorf("the refused requests made jobs: %d instead of the one create", got)
	}
	r.clean()
}

func TestForeignSandboxIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{"key": "mine"}).ID
	own := r.exec(box, "echo secret > file; echo secret")
	foreign := *r.caller
	foreign.key = otherTenant(t, r.settings["DATABASE_URL"])

	for to, body := range map[string]any{
		"GET /v1/sandboxes/" + box: nil, "DELETE /v1/sandboxes/" + box: nil, "POST /v1/sandboxes/" + box + "/pause": nil,
		"POST /v1/sandboxes/" + box + "/exec":       object{"command": "true"},
		"POST /v1/sandboxes/" + box + "/files/read": object{"path": "file"},
		"POST /v1/sandboxes/" + box + "/timeout":    object{"timeout_seconds": 1},
		"POST /v1/jobs":                             object{"sandbox_id": box, "kind": "delete"},
		"GET /v1/jobs/" + own.ID:                    nil, "GET /v1/jobs/" + own.ID + "?wait=1s": nil, "POST /v1/jobs/" + own.ID + "/cancel": nil,
		"POST /v1/jobs/" + own.ID + "/retry": nil, "GET /v1/jobs/" + own.ID + "/deliveries": nil,
	} {
		method, path, _ := strings.Cut(to, " ")
		foreign.call(method, path, body).problem(t, 404, "not_found")
	}
	for _, list := range []string{"/v1/sandboxes", "/v1/jobs", "/v1/jobs?sandbox_id=" + box} {
		if a := foreign.call("GET", list, nil).want(t, 200); strings.Contains(a.raw, box) {
			t.Errorf("%s shows a foreign sandbox: %s", list, a.raw)
		}
	}
	foreign.call("GET", "/metrics", nil).want(t, http.StatusForbidden) // an ordinary key is no operator's
	namesake := foreign.submit("/v1/sandboxes?wait=60s", object{"key": "mine"})
	if namesake.Job.succeeded(t); namesake.Existing || namesake.Sandbox.ID == box {
		t.Errorf("a foreign key led to %+v", namesake)
	}
	foreign.remove(namesake.Sandbox.ID)
	if b := r.sandbox(box); b.State != "running" {
		t.Errorf("after all that: %+v", b)
	}
	r.clean()
}

// otherTenant makes a second tenant and returns its key. There is no other way in than the database yet.
func otherTenant(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	check(t, err)
	store, err := models.Open(t.Context(), url, 1, models.Limits{Window: 1})
	check(t, err)
	defer store.Close()
	key, err := store.CreateKey(t.Context(), "other", "test", []string{models.ScopeSandboxes})
	check(t, err)
	return key
}

func TestPathsOutOfTheSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{}).ID
	// What code in the sandbox may do to lead a file call astray.
	r.exec(box, `ln -s /etc/passwd out; ln -s /etc outdir; ln -s ../../../etc/passwd up; ln -s loop loop; ln -s /proc/self/environ env
		mkdir d; echo ok > d/f; ln -s d inside; echo > shut; chmod 000 shut; mkfifo pipe`).succeeded(t)
	name := strings.Repeat("n", 300)
	for _, c := range []struct {
		verb string
		body object
		code string
	}{
		{"read", object{"path": "../../etc/passwd"}, "invalid_path"},
		{"read", object{"path": "d/../../etc/passwd"}, "invalid_path"},
		{"read", object{"path": "/etc/passwd"}, "invalid_path"},
		{"read", object{"path": "/proc/1/environ"}, "invalid_path"},
		{"read", object{"path": "out"}, "invalid_path"},
		{"read", object{"path": "outdir/passwd"}, "invalid_path"},
		{"read", object{"path": "up"}, "invalid_path"},
		{"read", object{"path": "env"}, "invalid_path"},
		{"read", object{"path": "loop"}, "invalid_path"},
		{"write", object{"path": "outdir/new", "content": "x"}, "invalid_path"},
		{"write", object{"path": "/usr/bin/new", "content": "x"}, "invalid_path"},
		{"write", object{"path": name, "content": "x"}, "invalid_path"},
		{"mkdir", object{"path": "../new"}, "invalid_path"},
		{"list", object{"path": "/"}, "invalid_path"},
		{"list", object{"path": "outdir"}, "invalid_path"},
		{"stat", object{"path": "outdir/passwd"}, "invalid_path"},
		{"move", object{"from": "d/f", "to": "outdir/f"}, "invalid_path"},
		{"move", object{"from": "outdir/passwd", "to": "stolen"}, "invalid_path"},
		{"remove", object{"path": "outdir/passwd"}, "invalid_path"},
		{"remove", object{"path": ".."}, "invalid_path"},
		{"read", object{"path": "none"}, "file_not_found"},
		{"remove", object{"path": "none"}, "file_not_found"},
		{"read", object{"path": "d"}, "not_a_file"},
		{"read", object{"path": "pipe"}, "not_a_file"},
		{"list", object{"path": "d/f"}, "not_a_directory"},
		{"write", object{"path": "d/f/g", "content": "x"}, "not_a_directory"},
		{"read", object{"path": "shut"}, "permission_denied"},
	} {
		if j := r.file(box, c.verb, c.body); j.State != "failed" || j.code() != c.code || j.Error.Message == "" {
			t.Errorf("%s %.60v: want %s, got %s", c.verb, c.body, c.code, j)
		}
	}
	if j := r.file(box, "read", object{"path": "inside/f"}); j.Content != "ok\n" {
		t.Errorf("a link within the roots: %s", j)
	}
	if j := r.file(box, "remove", object{"path": "outdir"}).succeeded(t); j.Attempt != 1 {
		t.Errorf("a link itself can be removed: %s", j)
	}
	if j := r.exec(box, "cat d/f; ls /etc/passwd"); j.Stdout != "ok\n/etc/passwd\n" {
		t.Errorf("afterwards: %s", j)
	}
	r.clean()
}

func TestBadCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{}).ID
	r.nothingRuns(box)
	for name, c := range map[string]struct {
		body        object
		state, code string
		exit        int
	}{
		"no such program": {body: object{"argv": []string{"no-such-program"}}, state: "failed", code: "command_not_found"},
		"no such file":    {body: object{"argv": []string{"/none/bin"}}, state: "failed", code: "command_not_found"},
		"in the shell":    {body: object{"command": "no-such-program"}, state: "succeeded", exit: 127},
		"no such cwd":     {body: object{"command": "true", "cwd": "/workspace/none"}, state: "failed", code: "cwd_not_found"},
		"a file as cwd":   {body: object{"command": "true", "cwd": "/etc/passwd"}, state: "failed", code: "cwd_not_found"},
		"another user":    {body: object{"command": "true", "user": "root"}, state: "failed", code: "user_not_available"},
		"unclosed quote":  {body: object{"command": "echo 'a"}, state: "succeeded", exit: 2},
	} {
		j := r.end(r.submit("/v1/sandboxes/"+box+"/exec", c.body).Job)
		if j.State != c.state || j.code() != c.code || j.Result.ExitCode != c.exit || j.Attempt != 1 {
			t.Errorf("%s: want %s %s, exit code %d, got %s", name, c.state, c.code, c.exit, j)
		}
	}
	imageless := r.submit("/v1/sandboxes", object{"image": "no/such:image"})
	if j := r.end(imageless.Job); j.State != "failed" || j.code() != "image_not_found" || j.Attempt != 1 {
		t.Errorf("a sandbox of no image: %s", j)
	}
	behind := r.submit("/v1/run?wait=0s", object{"image": "no/such:image", "command": "true"}) // all its jobs in one commit
	if j := r.end(behind.Job); j.State != "failed" || j.code() != "sandbox_failed" {
		t.Errorf("a command behind a failed create: %s", j)
	}
	if b := r.sandbox(imageless.Sandbox.ID); b.State != "failed" {
		t.Errorf("its sandbox: %+v", b)
	}
	r.nothingRuns(box)
	r.clean()
}

// nothingRuns waits until a sandbox has no processes but the guest and those of the question. The guest keeps some supervisors
// for the next commands; it may just be starting one, which has the guest's name then, or be about to bury another.
func (r *rig) nothingRuns(box string) {
	r.t.Helper()
	const processes = "ps -e --no-headers -o args >/tmp/ps; grep -v ^/.sandyard/sup /tmp/ps" // of a pipe it might see the other end
	var seen string
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("processes in sandbox %s:\n%s", box, seen)
		}
	})
	testenv.Eventually(r.t, "nothing but the guest, the shell and ps runs in the sandbox", func() bool {
		seen = r.exec(box, processes).succeeded(r.t).Stdout
		return strings.Count(seen, "\n") == 3
	})
}

func TestEndlessOutput(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	const gib, kept = 1 << 30, 1 << 20
	r := newRig(t)
	box := r.create(object{}).ID
	j := r.exec(box, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo problem >&2", gib)).succeeded(t)
	if j.Result.StdoutBytes != gib || !j.Result.StdoutTruncated || len(j.Stdout) != kept || strings.Trim(j.Stdout, "x") != "" || j.Stderr != "problem\n" {
		j.Stdout = fmt.Sprintf("%d bytes of it", len(j.Stdout))
		t.Errorf("1 GiB without a newline: %s", j)
	}
	t.Logf("after 1 GiB of output the worker had used %d MiB at most, the API %d", peak(t, r.worker)>>20, peak(t, r.api)>>20)
	for _, p := range []*process{r.worker, r.api} {
		if used := peak(t, p); used > 150<<20 {
			t.Errorf("%s used %d MiB of memory for 1 GiB of output", p.Name, used>>20)
		}
	}
	binary := r.exec(box, "head -c 3000000 /dev/urandom | tee random; sha256sum random >&2").succeeded(t)
	if out, err := base64.StdEncoding.DecodeString(binary.Stdout); err != nil || len(out) != kept || binary.Result.StdoutBytes != 3000000 {
		t.Errorf("binary output: %d bytes kept as %s, %v", len(out), binary.StdoutEncoding, err)
	}
	if j := r.exec(box, "printf none; printf none >&2").succeeded(t); j.Stdout != "none" || j.Stderr != "none" {
		t.Errorf("output without a newline: %s", j)
	}
	r.clean()
}

// peak is the most memory that a process has had in use, in bytes.
func peak(t *testing.T, p *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	check(t, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		t.Fatalf("no VmHWM in %s", status)
	}
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	check(t, err)
	return kib << 10
}
