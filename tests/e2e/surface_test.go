package e2e_test

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

func TestSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made := r.submit("/v1/sandboxes?wait=60s", object{
		"template": "python", "key": "first", "labels": object{"team": "a", "n": "1"},
		"env": object{"GREETING": "hello"}, "memory_mb": 128, "timeout_seconds": 600,
	})
	made.Job.succeeded(t)
	box := made.Sandbox
	if box.State != "running" || box.Key != "first" || box.Template != "python" || box.Image != image || box.Labels["team"] != "a" {
		t.Errorf("made %+v", box)
	}
	if found := r.engine.containers(t); len(found) != 1 {
		t.Errorf("one sandbox is %d containers: %v", len(found), found)
	}
	if got := r.exec(box.ID, "echo $GREETING"); got.Stdout != "hello\n" {
		t.Errorf("its environment: %s", got)
	}
	again := r.submit("/v1/sandboxes", object{"key": "first"})
	if !again.Existing || again.Sandbox.ID != box.ID {
		t.Errorf("a create with the key of a live sandbox answered %+v", again)
	}
	other := r.created(object{"image": image, "labels": object{"team": "a", "n": "2"}})
	lists(r, box.ID, other.ID)
	timeouts(r, box)
	deletes(r, box.ID, other.ID)
}

// lists checks every filter and the cursor on two sandboxes.
func lists(r *rig, first, second string) {
	r.t.Helper()
	for query, want := range map[string][]string{
		"":                           {second, first},
		"state=running":              {second, first},
		"state=paused":               {},
		"provider=docker":            {second, first},
		"key=first":                  {first},
		"key=none":                   {},
		"label=team:a":               {second, first},
		"label=team%3Da&label=n%3D2": {second},
		"label=team:b":               {},
		"state=running&limit=1":      {second},
		"limit=1&cursor=" + second:   {first},
		"limit=1&cursor=" + first:    {},
		"label=n:1&provider=docker&key=first&state=running": {first},
	} {
		if got := ids(r, query); !slices.Equal(got, want) {
			r.t.Errorf("sandboxes?%s lists %v, want %v", query, got, want)
		}
	}
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	decode(r.t, r.call("GET", "/v1/sandboxes?limit=1", nil).want(r.t, 200).raw, &page)
	if page.NextCursor == "" || !slices.Equal(ids(r, "cursor="+url.QueryEscape(page.NextCursor)), []string{first}) {
		r.t.Errorf("the cursor %q does not lead to the second page", page.NextCursor)
	}
}

func ids(r *rig, query string) []string {
	r.t.Helper()
	var page struct{ Sandboxes []sandbox }
	decode(r.t, r.call("GET", "/v1/sandboxes?"+query, nil).want(r.t, 200).raw, &page)
	found := []string{}
	for _, b := range page.Sandboxes {
		found = append(found, b.ID)
	}
	return found
}

func timeouts(r *rig, box sandbox) {
	r.t.Helper()
	j := r.end(r.submit("/v1/sandboxes/"+box.ID+"/timeout", object{"timeout_seconds": 7200}).Job).succeeded(r.t)
	now := r.sandbox(box.ID)
	if left := time.Until(now.ExpiresAt); left < 7100*time.Second || left > 7200*time.Second || !j.Result.ExpiresAt.Equal(now.ExpiresAt) {
		r.t.Errorf("a timeout of two hours leaves %v: %s", left, j)
	}
}

// deletes checks that an ended sandbox stays readable, takes no work, and frees its key.
func deletes(r *rig, keyed, other string) {
	r.t.Helper()
	r.remove(keyed, other, keyed)
	if b := r.sandbox(keyed); b.State != "deleted" || b.EndReason != "deleted" {
		r.t.Errorf("after its delete: %+v", b)
	}
	r.call("POST", "/v1/sandboxes/"+keyed+"/exec", object{"command": "true"}).problem(r.t, 410, "sandbox_ended")
	r.call("POST", "/v1/sandboxes/"+keyed+"/files/read", object{"path": "a"}).problem(r.t, 410, "sandbox_ended")
	anew := r.submit("/v1/sandboxes", object{"key": "first"})
	if anew.Existing || anew.Sandbox.ID == keyed {
		r.t.Errorf("the key of a deleted sandbox leads to %+v", anew)
	}
	r.clean()
}

func TestExec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{}).ID
	for name, c := range map[string]struct {
		body           object
		stdout, stderr string
		want           result
		state          string
	}{
		"command":  {body: object{"command": "echo out; echo err >&2; exit 3"}, stdout: "out\n", stderr: "err\n", want: result{ExitCode: 3}},
		"argv":     {body: object{"argv": []string{"printf", "%s|", "a b", "$HOME", ""}}, stdout: "a b|$HOME||"},
		"env":      {body: object{"command": `echo "$A-$B"`, "env": object{"A": "ä b", "B": ""}}, stdout: "ä b-\n"},
		"cwd":      {body: object{"command": "pwd", "cwd": "/tmp"}, stdout: "/tmp\n"},
		"stdin":    {body: object{"command": "tr a-z A-Z", "stdin": "über\n"}, stdout: "üBER\n"},
		"no stdin": {body: object{"command": "cat"}},
		"user":     {body: object{"command": "id -u"}, stdout: "1000\n"},
		"signal":   {body: object{"command": "kill -SEGV $$"}, want: result{ExitCode: 139, Signal: "SIGSEGV"}},
		"python":   {body: object{"argv": []string{"python3", "-c", "print(2**64)"}}, stdout: "18446744073709551616\n"},
		"timeout": {
			body: object{"command": "echo begun; sleep 60", "timeout_seconds": 1}, stdout: "begun\n",
			want: result{ExitCode: 143, Signal: "SIGTERM", TimedOut: true}, state: "timed_out",
		},
		"truncated": {body: object{"command": "printf 123456789", "max_output_bytes": 4}, want: result{StdoutTruncated: true}},
	} {
		j := r.end(r.submit("/v1/sandboxes/"+box+"/exec", c.body).Job)
		if c.state == "" {
			c.state = "succeeded"
		}
		got := result{ExitCode: j.Result.ExitCode, Signal: j.Result.Signal, TimedOut: j.Result.TimedOut, StdoutTruncated: j.Result.StdoutTruncated}
		if got.StdoutTruncated && len(j.Stdout) == 4 && j.Result.StdoutBytes == 9 {
			j.Stdout = ""
		}
		if j.State != c.state || j.Stdout != c.stdout || j.Stderr != c.stderr || !same(got, c.want) {
			t.Errorf("%s: %s", name, j)
		}
	}
	binary := "\x00\xff\xfe\n"
	j := r.exec(box, "cat", object{"stdin": base64.StdEncoding.EncodeToString([]byte(binary)), "stdin_encoding": "base64"})
	if out, err := base64.StdEncoding.DecodeString(j.Stdout); err != nil || string(out) != binary || j.StdoutEncoding != "base64" {
		t.Errorf("binary output: %s", j)
	}
	r.clean()
}

func same(a, b result) bool {
	return a.ExitCode == b.ExitCode && a.Signal == b.Signal && a.TimedOut == b.TimedOut && a.StdoutTruncated == b.StdoutTruncated
}

func TestFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{}).ID
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	for name, content := range map[string]string{
		"text.txt": "zażółć\n\u2028 \U0001F600", "with-nul": "a\x00b", "empty": "", "bytes": string(everyByte),
		"large": strings.Repeat(string(everyByte), 8<<10), "crlf": "a\r\nb",
	} {
		sent := object{"path": "d/" + name, "content": content}
		if strings.ContainsRune(content, 0x80) || name == "bytes" || name == "large" {
			sent["content"], sent["encoding"] = base64.StdEncoding.EncodeToString([]byte(content)), "base64"
		}
		if wrote := r.file(box, "write", sent).succeeded(t); wrote.Result.Size != int64(len(content)) || wrote.Result.Path != "/workspace/d/"+name {
			t.Errorf("write of %s: %s", name, wrote)
		}
		if got := r.file(box, "read", object{"path": "d/" + name}).succeeded(t).bytes(t); got != content {
			t.Errorf("%s came back as %d bytes %.60q, want %d", name, len(got), got, len(content))
		}
	}
	if sum := r.exec(box, "cksum <d/bytes; wc -c <d/large; cat d/text.txt"); sum.Stdout != "1313719201 256\n2097152\nzażółć\n\u2028 \U0001F600" {
		t.Errorf("the command sees other files: %s", sum)
	}
	r.file(box, "write", object{"path": "run", "content": "#!/bin/sh\necho ran\n", "mode": "0755"}).succeeded(t)
	if j := r.exec(box, "./run"); j.Stdout != "ran\n" {
		t.Errorf("the written program: %s", j)
	}
	r.file(box, "mkdir", object{"path": "/tmp/x/y"}).succeeded(t)
	if j := r.file(box, "stat", object{"path": "run"}).succeeded(t); j.Result.Type != "file" || j.Result.Size != 19 || j.Result.Mode != "0755" {
		t.Errorf("stat: %s", j)
	}
	r.file(box, "move", object{"from": "run", "to": "d/ran"}).succeeded(t)
	r.file(box, "remove", object{"path": "d/large"}).succeeded(t)
	if got := names(r.file(box, "list", object{"path": "d"}).succeeded(t)); got != "bytes crlf empty ran text.txt with-nul" {
		t.Errorf("d holds %s", got)
	}
	r.file(box, "remove", object{"path": "d"}).succeeded(t)
	if got := names(r.file(box, "list", object{}).succeeded(t)); got != "" {
		t.Errorf("the work directory holds %s", got)
	}
	r.clean()
}

func names(list job) string {
	var all []string
	for _, e := range list.Result.Entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

func TestPauseKeepsMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{}).ID
	// The counter lives in the memory of a process.
	r.file(box, "write", object{"path": "count.py", "content": `import os, time
n = 0
while True:
    n += 1
    with open("count.new", "w") as f: f.write(str(n))
    os.rename("count.new", "count")
    time.sleep(0.01)
`})
	counter := r.start(box, "exec python3 count.py", object{"parallel": true})
	count := func() int {
		j := r.file(box, "read", object{"path": "count"})
		n, _ := strconv.Atoi(j.Content) // 0 as long as there is no file
		return n
	}
	testenv.Eventually(t, "the counter counts", func() bool { return count() > 10 })
	r.end(r.submit("/v1/sandboxes/"+box+"/pause", nil).Job).succeeded(t)
	if b := r.sandbox(box); b.State != "paused" {
		t.Errorf("after pause: %+v", b)
	}
	if found := r.engine.containers(t); len(found) != 1 || !strings.HasSuffix(found[0], ": paused") {
		t.Errorf("after pause the engine has %v", found)
	}
	if j := r.exec(box, "true"); j.State != "failed" || j.code() != "sandbox_paused" {
		t.Errorf("an exec in a paused sandbox: %s", j)
	}
	r.end(r.submit("/v1/sandboxes/"+box+"/resume", nil).Job).succeeded(t)
	before := count()
	testenv.Eventually(t, "the counter counts on", func() bool { return count() > before })
	if before <= 10 {
		t.Errorf("after the pause the counter stands at %d", before)
	}
	testenv.Eventually(t, "somebody waits for the counter again", func() bool { return r.job(counter.ID).State == "running" })
	r.clean()
}

func TestJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.create(object{"env": object{"A": "1"}}).ID

	slow := r.start(box, "sleep 60")
	behind := r.start(box, "echo behind >> log")
	side := r.exec(box, "echo beside", object{"parallel": true})
	if side.Stdout != "beside\n" || r.job(slow.ID).ended() || r.job(behind.ID).State != "queued" {
		t.Errorf("a parallel job waited: %s", side)
	}
	if j := r.job(slow.ID, "?wait=0.1"); j.ended() {
		t.Errorf("a wait of 0.1 s cut the job off: %s", j)
	}
	for _, id := range []string{behind.ID, slow.ID} {
		r.call("POST", "/v1/jobs/"+id+"/cancel", nil).want(t, 200)
	}
	for _, id := range []string{behind.ID, slow.ID} {
		if j := r.end(r.job(id)); j.State != "cancelled" || j.code() != "cancelled" {
			t.Errorf("cancelled: %s", j)
		}
	}
	r.call("POST", "/v1/jobs/"+side.ID+"/cancel", nil).want(t, 200) // of an ended job it changes nothing
	if j := r.job(side.ID); j.State != "succeeded" {
		t.Errorf("the cancel of an ended job: %s", j)
	}

	body := object{"command": "echo again >> log; cat", "stdin": "in"}
	first := r.submit("/v1/sandboxes/"+box+"/exec?wait=60s", body, "Idempotency-Key", "k1")
	replay := r.call("POST", "/v1/sandboxes/"+box+"/exec?wait=60s", body, "Idempotency-Key", "k1").want(t, 200)
	var same accepted
	decode(t, replay.raw, &same)
	if same.Job.ID != first.Job.ID || replay.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay of %s answered %s", first.Job.ID, replay.raw)
	}
	r.call("POST", "/v1/sandboxes/"+box+"/exec", object{"command": "true"}, "Idempotency-Key", "k1").problem(t, 422, "idempotency_key_reused")

	retried := r.end(r.submit("/v1/jobs/"+first.Job.ID+"/retry", nil).Job).succeeded(t)
	if retried.RetryOf != first.Job.ID || retried.Stdout != "in" {
		t.Errorf("retry: %s", retried)
	}
	generic := r.end(r.submit("/v1/jobs", object{"sandbox_id": box, "kind": "read", "args": object{"path": "log"}}).Job).succeeded(t)
	if generic.Content != "again\nagain\n" { // once by the first, once by its retry; nothing by the cancelled or the replayed
		t.Errorf("the log reads %q", generic.Content)
	}
	jobLists(r, box, slow.ID, behind.ID)
	r.clean()
}

// jobLists checks filters, pages and projection of the list of jobs.
func jobLists(r *rig, box string, cancelled ...string) {
	r.t.Helper()
	list := func(query string) []job {
		var page struct{ Jobs []job }
		decode(r.t, r.call("GET", "/v1/jobs?"+query, nil).want(r.t, 200).raw, &page)
		return page.Jobs
	}
	found := list("state=cancelled&sandbox_id=" + box)
	if len(found) != 2 || found[0].ID != cancelled[1] || found[1].ID != cancelled[0] {
		r.t.Errorf("cancelled jobs: %v", found)
	}
	if all := list("kind=create&fields=id,kind"); len(all) != 1 || all[0].Kind != "create" || all[0].State != "" {
		r.t.Errorf("creates, projected: %+v", all)
	}
	page := list("limit=2")
	if next := list("limit=2&cursor=" + page[1].ID); len(page) != 2 || len(next) != 2 || next[0].ID >= page[1].ID {
		r.t.Errorf("pages: %v, %v", page, next)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out := r.submit("/v1/run", object{"argv": []string{"python3", "main.py"}, "env": object{"X": "5"}, "files": []object{
		{"path": "main.py", "content": "import os, lib\nprint(lib.double(int(os.environ['X'])))\nprint(open('data', 'rb').read().hex())\n"},
		{"path": "lib.py", "content": "def double(n): return 2 * n\n"},
		{"path": "data", "content": "/wA=", "encoding": "base64"},
	}})
	if out.Job.succeeded(t); out.Job.Stdout != "10\nff00\n" || out.Job.Result.ExitCode != 0 {
		t.Errorf("run: %s", out.Job)
	}
	testenv.Eventually(t, "the sandbox of a run is removed", func() bool {
		return r.sandbox(out.Sandbox.ID).State == "deleted" && len(r.engine.containers(t)) == 0
	})
	failed := r.submit("/v1/run", object{"command": "exit 7"})
	if failed.Job.succeeded(t); failed.Job.Result.ExitCode != 7 {
		t.Errorf("run of a program that fails: %s", failed.Job)
	}
	r.clean()
}
