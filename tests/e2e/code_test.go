package e2e_test

import (
	"strings"
	"testing"

	"sandyard/dev/testenv"
)

// cell submits a piece of code and returns its job.
func (r *rig) cell(box, lang, code string, more ...object) job {
	r.t.Helper()
	body := object{"language": lang, "code": code}
	for _, o := range more {
		for name, value := range o {
			body[name] = value
		}
	}
	return r.submit("/v1/sandboxes/"+box+"/code", body).Job
}

// shows is the text of the value of a cell that has ended.
func (j job) shows() string {
	for _, shown := range j.Result.Results {
		if text, ok := shown.Data["text/plain"].(string); ok && shown.Main {
			return text
		}
	}
	return ""
}

func TestCodeKeepsItsState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	r.cell(box, "python", "import math\nx = 20")
	j := r.end(r.cell(box, "python", "print('hello'); display({'a': 1})\nx * 2 + math.floor(2.5)")).succeeded(t)
	if j.shows() != "42" || j.Stdout != "hello\n" || j.Result.Context != "python" || j.Result.ExecutionCount != 2 || len(j.Result.Results) != 2 {
		t.Errorf("got %s", j)
	}
	j = r.end(r.cell(box, "python", "1 / 0")).succeeded(t)
	if j.Result.Error == nil || j.Result.Error.Name != "ZeroDivisionError" || !strings.Contains(j.Result.Error.Traceback, "1 / 0") {
		t.Errorf("got %s", j)
	}
	r.end(r.cell(box, "bash", "word=kept; cd /tmp", object{"context": "shell"})).succeeded(t)
	j = r.end(r.cell(box, "bash", "echo $word $PWD; exit 3", object{"context": "shell"})).succeeded(t)
	if j.Stdout != "kept /tmp\n" || j.Result.ExitCode != 3 || j.Result.Error != nil || j.Result.StateLost {
		t.Errorf("got %s", j)
	}
	if j = r.end(r.cell(box, "javascript", "1")); j.code() != "command_not_found" || !strings.Contains(j.Error.Message, "node") {
		t.Errorf("a language that is not there: %s", j)
	}
	path := "/v1/sandboxes/" + box + "/code"
	r.call("POST", path, object{"language": "cobol", "code": "1"}).problem(t, 422, "invalid_request")
	r.call("POST", path, object{"language": "bash", "code": "1", "context": "python"}).problem(t, 422, "invalid_request")
	r.call("POST", path, object{"language": "bash", "code": ""}).problem(t, 422, "invalid_request")
	var list struct {
		Contexts []struct{ Name, Language string }
	}
	decode(t, r.call("GET", path+"/contexts", nil).want(t, 200).raw, &list)
	if len(list.Contexts) != 2 || list.Contexts[0].Name != "python" || list.Contexts[1].Language != "bash" {
		t.Errorf("contexts: %+v", list)
	}
	if raw := r.call("GET", "/v1/sandboxes/"+box+"/execs", nil).want(t, 200).raw; !strings.Contains(raw, `"execs":[]`) {
		t.Errorf("contexts are among the execs: %s", raw)
	}
	r.call("DELETE", path+"/contexts/python?wait=60s", nil).want(t, 200)
	if j = r.end(r.cell(box, "python", "x")); j.Result.Error == nil || j.Result.Error.Name != "NameError" || j.Result.ExecutionCount != 1 {
		t.Errorf("after the context was deleted: %s", j)
	}
	r.clean()
}

// TestMadeContexts starts contexts before their first cells, as clients do that keep one for each of their users.
func TestMadeContexts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	path := "/v1/sandboxes/" + box + "/code/contexts"
	type made struct {
		Context string
		Job     job
	}
	create := func(status int, body object, key string) (m made) {
		t.Helper()
		decode(t, r.call("POST", path, body, "Idempotency-Key", key).want(t, status).raw, &m)
		return m
	}
	here := object{"language": "bash", "cwd": "/tmp", "env": object{"WORD": "kept"}}
	first := create(201, here, "one")
	again := create(200, here, "one")
	other := create(201, here, "two")
	if first.Context == "" || again.Context != first.Context || again.Job.ID != first.Job.ID || other.Context == first.Context {
		t.Errorf("made %+v, again %+v, another %+v", first, again, other)
	}
	in := func(m made) object { return object{"context": m.Context} }
	r.end(r.cell(box, "bash", "own=1", in(first))).succeeded(t)
	if j := r.end(r.cell(box, "bash", "echo $WORD $PWD $own", in(first))).succeeded(t); j.Stdout != "kept /tmp 1\n" || j.Result.ExecutionCount != 2 {
		t.Errorf("in the first: %s", j)
	}
	if j := r.end(r.cell(box, "bash", "echo $WORD $PWD $own", in(other))).succeeded(t); j.Stdout != "kept /tmp\n" || j.Result.ExecutionCount != 1 {
		t.Errorf("in the other: %s", j)
	}
	create(201, object{"language": "python", "context": "mine"}, "")
	if j := create(200, object{"language": "python", "context": "mine"}, "").Job.succeeded(t); !j.Result.Existing {
		t.Errorf("one that runs already: %s", j)
	}
	if j := create(200, object{"language": "javascript"}, "").Job; j.code() != "command_not_found" {
		t.Errorf("a language that is not there: %s", j)
	}
	if j := create(200, object{"language": "bash", "context": "mine"}, "").Job; j.code() != "invalid_argument" {
		t.Errorf("a context of another language: %s", j)
	}
	r.call("POST", path, object{"language": "bash", "context": "python"}).problem(t, 422, "invalid_request")
	r.call("POST", path, object{"language": "cobol"}).problem(t, 422, "invalid_request")
	r.call("POST", path, object{}).problem(t, 422, "invalid_request")
	waits := r.call("POST", path+"?wait=0", object{"language": "python", "cwd": "/nowhere"}).want(t, 202)
	var late made
	if decode(t, waits.raw, &late); late.Context == "" || r.end(late.Job).code() != "cwd_not_found" {
		t.Errorf("not waited for: %s", waits.raw)
	}
	names := func() (all string) {
		var list struct{ Contexts []struct{ Name string } }
		decode(t, r.call("GET", path, nil).want(t, 200).raw, &list)
		for _, c := range list.Contexts {
			all += c.Name + " "
		}
		return all
	}
	if got := names(); got != first.Context+" "+other.Context+" mine " {
		t.Errorf("these run: %s", got)
	}
	r.call("DELETE", path+"/"+first.Context+"?wait=60s", nil).want(t, 200)
	if got := names(); got != other.Context+" mine " {
		t.Errorf("these run after one was deleted: %s", got)
	}
	r.clean()
}

func TestCellThatIsStoppedKeepsItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	wait := "import time\nx = 7\nopen('begun', 'w').close()\nwhile True: time.sleep(0.05)"
	j := r.end(r.cell(box, "python", wait, object{"timeout_seconds": 3}))
	if j.State != "timed_out" || j.code() != "timeout" || j.Result.StateLost || !j.Result.TimedOut || j.Result.Error.Name != "KeyboardInterrupt" {
		t.Errorf("got %s", j)
	}
	r.end(r.cell(box, "python", "import os; os.remove('begun')")).succeeded(t)
	j = r.cell(box, "python", wait)
	testenv.Eventually(t, "the cell runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "begun", "parallel": true}).Job).State == "succeeded"
	})
	beside := r.cell(box, "python", "x", object{"parallel": true}) // waits for its turn all the same
	r.call("POST", "/v1/jobs/"+j.ID+"/cancel", nil).want(t, 200)
	if j = r.end(j); j.State != "cancelled" || j.Result.StateLost {
		t.Errorf("got %s", j)
	}
	if beside = r.end(beside).succeeded(t); beside.shows() != "7" {
		t.Errorf("the next cell: %s", beside)
	}
	r.clean()
}

func TestKilledWorkersCellRunsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	r.end(r.cell(box, "python", "n = 0")).succeeded(t)
	j := r.cell(box, "python", "import os, time\nn += 1\nopen('log', 'a').write('x')\nprint('begun', flush=True)\n"+
		"while not os.path.exists('go'): time.sleep(0.05)\nn")
	after := r.cell(box, "python", "n + 1")
	testenv.Eventually(t, "the cell runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content == "x"
	})
	var out struct {
		Data string
		EOF  bool
	}
	decode(t, r.call("GET", "/v1/sandboxes/"+box+"/execs/"+j.ID+"/output?wait=30s", nil).want(t, 200).raw, &out)
	if out.Data != "begun\n" || out.EOF {
		t.Errorf("the output of a cell that runs: %+v", out)
	}
	r.worker.Kill()
	r.startWorker()
	r.end(r.submit("/v1/sandboxes/"+box+"/files/write", object{"path": "go", "content": "", "parallel": true}).Job).succeeded(t)
	j = r.end(j).succeeded(t)
	if j.shows() != "1" || j.Stdout != "begun\n" || j.Attempt != 2 || j.Result.ExecutionCount != 2 {
		t.Errorf("the cell whose worker was killed: %s", j)
	}
	if after = r.end(after).succeeded(t); after.shows() != "2" {
		t.Errorf("the cell behind it: %s", after)
	}
	if log := r.file(box, "read", object{"path": "log"}); log.Content != "x" {
		t.Errorf("the cell ran more than once: %q", log.Content)
	}
	r.clean()
}

func TestRunOfCode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := object{"language": "python", "code": "import data\ndata.n + int(open('/dev/stdin').read() or 1)", "env": object{"A": "b"}, "files": []object{{"path": "data.py", "content": "n = 4"}}}
	j := r.submit("/v1/run?wait=60s", run).Job.succeeded(t)
	if j.shows() != "5" || j.Kind != "code" {
		t.Errorf("got %s", j)
	}
	r.call("POST", "/v1/run", object{"language": "python", "code": "1", "command": "true"}).problem(t, 422, "invalid_request")
	r.call("POST", "/v1/run", object{"code": "1"}).problem(t, 422, "invalid_request")
	r.call("POST", "/v1/run", object{"command": "true", "runtime": "no-such"}).problem(t, 422, "invalid_request")
	r.clean()
}
