package web_test

import (
	"fmt"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestProcesses lists and ends a process while the sandbox's order is kept by a command that goes on.
func TestProcesses(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	box := "/v1/sandboxes/" + r.box
	long := r.call("POST", box+"/exec", map[string]any{"command": "fake:sleep 1h"}).want(t, 202).text("job.id")
	testenv.Eventually(t, "the command runs", func() bool { return r.counted("exec", models.Running) == 1 })
	a := r.call("POST", box+"/processes?wait=30s", nil).want(t, 200)
	list, _ := a.get("job.result.processes").([]any)
	if a.text("job.state") != "succeeded" || len(list) != 1 || a.get("job.result.total") != 1.0 {
		t.Fatalf("the list: %s", a.raw)
	}
	p := list[0].(map[string]any)
	if p["exec_id"] != long || p["command"] != "fake:sleep 1h" {
		t.Errorf("the process: %v", p)
	}
	signal := fmt.Sprintf("%s/processes/%v/signal?wait=30s", box, p["pid"])
	for _, bad := range []struct {
		path, body string
		status     int
	}{
		{signal, `{}`, 422},
		{signal, `{"signal": "SIGNOTHING"}`, 422},
		{signal, `{"signal": "TERM", "start": -1}`, 422},
		{signal, `{"signal": "TERM", "pid": 7}`, 422},
		{box + "/processes/1/signal", `{"signal": "TERM"}`, 422},
		{box + "/processes/x/signal", `{"signal": "TERM"}`, 422},
	} {
		if a := r.call("POST", bad.path, bad.body); a.status != bad.status || a.text("code") != "invalid_request" {
			t.Errorf("%s %s: answered %s", bad.path, bad.body, a.raw)
		}
	}
	send := func(signalName string, start any) answer {
		return r.call("POST", signal, map[string]any{"signal": signalName, "start": start}).want(t, 200)
	}
	if a := send("TERM", 99); a.text("job.error.code") != "process_not_found" {
		t.Errorf("another process's start: %s", a.raw)
	}
	if a := send("term", p["start"]); a.text("job.state") != "succeeded" {
		t.Errorf("the signal: %s", a.raw)
	}
	if a := r.call("GET", "/v1/jobs/"+long+"?wait=30s", nil).want(t, 200); a.text("result.signal") != "SIGTERM" {
		t.Errorf("the command: %s", a.raw)
	}
	if a := send("TERM", 0); a.text("job.error.code") != "process_not_found" {
		t.Errorf("afterwards: %s", a.raw)
	}
}

func TestMCPShowsAndEndsProcesses(t *testing.T) {
	t.Parallel()
	k := newInsideRig(t).talk("?tools=shell")
	exec := k.ok("shell_exec", object{"command": "fake:sleep 1h", "background": true})
	s := k.ok("process_list", object{})
	list, _ := s.fields["processes"].([]any)
	if len(list) != 1 || s.fields["truncated"] != false || !strings.Contains(s.text, "fake:sleep 1h") {
		t.Fatalf("process_list: %s %v", s.text, s.fields)
	}
	p := list[0].(map[string]any)
	if p["exec_id"] != exec.str("exec_id") {
		t.Errorf("the process: %v", p)
	}
	k.refused("process_signal", object{"pid": 1}, "invalid_request", "pid must be between 2")
	k.refused("process_signal", object{"pid": 77}, "process_not_found", "there is no process 77")
	k.ok("process_signal", object{"pid": p["pid"], "start": p["start"]})
	if s := k.ok("shell_wait", object{"exec_id": exec.str("exec_id")}); s.fields["signal"] != "SIGTERM" {
		t.Errorf("the command: %s %v", s.text, s.fields)
	}
}
