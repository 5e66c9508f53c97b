package web_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"sandyard/dev/testenv"
)

func TestRunAnswersTheCommandsOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	a := r.call("POST", "/v1/run", map[string]any{
		"files":   []any{map[string]any{"path": "a.txt", "content": "hi\x00there"}},
		"command": "fake:stdout hello; fake:stderr oops; fake:exit 3",
	}).want(t, 200)
	if a.text("job.state") != "succeeded" || a.text("job.kind") != "exec" || a.get("job.result.exit_code") != 3.0 ||
		a.text("job.stdout") != "hello" || a.text("job.stderr") != "oops" || a.text("job.stdout_encoding") != "utf-8" {
		t.Fatalf("unexpected answer: %s", a.raw)
	}
	id := a.text("job.sandbox_id")
	testenv.Eventually(t, "the sandbox of a run is deleted", func() bool {
		return r.call("GET", "/v1/sandboxes/"+id, nil).text("state") == "deleted"
	})
}

func TestBytesSurviveExactly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.sandbox(map[string]any{})
	for name, content := range map[string]string{
		"text": "zażółć\n\u2028 \x00 \U0001F600", "binary": "\xff\xfe\x00\x01\r\n", "empty": "",
	} {
		encoding, sent := "utf-8", content
		if name == "binary" {
			encoding, sent = "base64", base64.StdEncoding.EncodeToString([]byte(content))
		}
		r.call("POST", "/v1/sandboxes/"+id+"/files/write", map[string]any{"path": name, "content": sent, "encoding": encoding}).want(t, 202)
		a := r.call("POST", "/v1/sandboxes/"+id+"/files/read?wait=20s", map[string]any{"path": name}).want(t, 200)
		if a.text("job.content") != sent || a.text("job.content_encoding") != encoding {
			t.Errorf("%s: wrote %q, read %s", name, sent, a.raw)
		}
	}
	a := r.call("POST", "/v1/sandboxes/"+id+"/exec?wait=20", map[string]any{"command": "fake:cat", "stdin": "/w==", "stdin_encoding": "base64"})
	if a.want(t, 200).text("job.stdout") != "/w==" || a.text("job.stdout_encoding") != "base64" {
		t.Errorf("stdin did not come back: %s", a.raw)
	}
}

func TestFileOperations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	files := "/v1/sandboxes/" + r.sandbox(map[string]any{}) + "/files/"
	steps := []struct {
		verb string
		body map[string]any
		want string // in the job
	}{
		{"mkdir", map[string]any{"path": "d"}, `"type":"directory"`},
		{"write", map[string]any{"path": "d/f", "content": "abc", "mode": "0600"}, `"size":3`},
		{"stat", map[string]any{"path": "d/f"}, `"size":3`},
		{"list", map[string]any{"path": "d"}, `"name":"f"`},
		{"list", map[string]any{}, `"name":"d"`},
		{"move", map[string]any{"from": "d/f", "to": "g"}, `"name":"g"`},
		{"remove", map[string]any{"path": "d"}, `"state":"succeeded"`},
		{"read", map[string]any{"path": "d/f"}, `"code":"file_not_found"`},
	}
	for _, step := range steps {
		a := r.call("POST", files+step.verb+"?wait=20s", step.body).want(t, 200)
		if !strings.Contains(a.raw, step.want) {
			t.Errorf("%s %v: no %s in %s", step.verb, step.body, step.want, a.raw)
		}
	}
}

func TestJobsAnswerBeforeTheyRun(t *testing.T) {
	t.Parallel()
	r := newRig(t) // no worker
	id := r.sandbox(map[string]any{"template": "node"})
	a := r.call("POST", "/v1/sandboxes/"+id+"/exec?wait=0.1", map[string]any{"argv": []string{"fake:exit", "0"}, "priority": 7}).want(t, 202)
	for _, field := range []string{"result", "stdout", "stdout_encoding", "error", "timings.started_at", "timings.run_ms"} {
		if v := a.get("job." + field); v != nil {
			t.Errorf("%s is %v before the job ran", field, v)
		}
	}
	if a.header.Get("Location") != "/v1/jobs/"+a.text("job.id") || a.text("job.state") != "queued" || a.get("job.priority") != 7.0 {
		t.Errorf("unexpected answer: %v %s", a.header, a.raw)
	}
	if a.text("sandbox.state") != "creating" || a.text("sandbox.image") != "fake-node" {
		t.Errorf("unexpected sandbox: %s", a.raw)
	}
}
