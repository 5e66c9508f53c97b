package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestDrainUnderLoad takes one worker after the other away, by the operator's command and by SIGTERM, while commands
// run and wait: all of them succeed, none runs twice, and each worker ends within its grace.
func TestDrainUnderLoad(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	const boxes, execs = 8, 10
	const grace = 2 * time.Second
	const end = grace + 15*time.Second // on a busy machine
	r := newRig(t, "DRAIN_GRACE", grace.String())
	homes := make([]string, boxes)
	for i := range homes {
		homes[i] = r.create(object{"memory_mb": 64}).ID
	}
	var all []job
	for n := range execs {
		for _, box := range homes {
			all = append(all, r.start(box, fmt.Sprintf("echo %d >> log; sleep 0.3; echo %d", n, n)))
		}
	}
	long := r.start(homes[0], "echo long >> other; sleep 6; echo done", object{"parallel": true}) // longer than the grace
	testenv.Eventually(t, "commands run", func() bool { return r.job(all[boxes-1].ID).ended() })
	first := r.worker
	r.startWorker()
	id := r.nodeOf(homes[0])
	r.operate("node", "drain", "--leave", id)
	first.Await(end)
	if first.Err() != nil {
		t.Errorf("the drained worker ended with %v", first.Err())
	}
	second := r.worker
	r.startWorker()
	r.worker.Line(&r.worker.Stderr, `"msg":"worker started"`)
	second.Signal(syscall.SIGTERM)
	second.Await(end)
	if second.Err() != nil {
		t.Errorf("the worker ended with %v after SIGTERM", second.Err())
	}
	for i, j := range all {
		if j = r.end(j).succeeded(t); j.Stdout != fmt.Sprintln(i/boxes) {
			t.Errorf("job %d: %s", i, j)
		}
	}
	if j := r.end(long).succeeded(t); j.Stdout != "done\n" {
		t.Errorf("the long one: %s", j)
	}
	for _, box := range homes {
		if got := r.exec(box, "cat log").Stdout; strings.Join(strings.Fields(got), "") != "0123456789" {
			t.Errorf("sandbox %s ran %q", box, got)
		}
	}
	if got := r.exec(homes[0], "cat other").Stdout; got != "long\n" {
		t.Errorf("the long one ran as %q", got)
	}
	r.clean()
}

// nodeOf is the worker that holds a sandbox.
func (r *rig) nodeOf(box string) string {
	r.t.Helper()
	var page struct {
		Events []struct {
			Event  string
			Detail struct{ Node string }
		}
	}
	decode(r.t, r.call("GET", "/v1/sandboxes/"+box+"/events", nil).want(r.t, 200).raw, &page)
	for _, e := range page.Events {
		if (e.Event == "sandbox.placed" || e.Event == "sandbox.adopted") && e.Detail.Node != "" {
			return e.Detail.Node
		}
	}
	r.t.Fatalf("nobody holds %s: %+v", box, page)
	return ""
}

// operate runs the operator's tool to its end and returns what it prints.
func (r *rig) operate(args ...string) string {
	r.t.Helper()
	env := []string{"DATABASE_URL=" + r.settings["DATABASE_URL"]} // it needs no Redis
	p := startProcess(r.t, "", env, "sandyard", args...)
	p.Await(time.Minute)
	if p.Err() != nil {
		r.t.Fatalf("sandyard %v: %v: %s", args, p.Err(), p.Stderr.Tail())
	}
	return p.Stdout.String()
}
