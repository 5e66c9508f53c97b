package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

func TestKilledWorkersCommandGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	j := r.start(box, "echo start >> log; echo begun; sleep 3; echo done")
	testenv.Eventually(t, "the command runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content == "start\n"
	})
	r.worker.Kill()
	killed := time.Now()
	r.startWorker()
	j = r.end(j).succeeded(t)
	if j.Stdout != "begun\ndone\n" || j.Result.ExitCode != 0 || j.Attempt != 2 {
		t.Errorf("the command whose worker was killed: %s", j)
	}
	took := j.Timings.FinishedAt.Sub(killed).Round(time.Millisecond)
	t.Logf("the command of a killed worker ended %v after its death", took)
	if !testing.Short() && took > lease+3*time.Second { // make test has no verdict of the clock
		t.Errorf("it ended %v after the worker's death, want %v at most", took, lease+3*time.Second)
	}
	if log := r.file(box, "read", object{"path": "log"}); log.Content != "start\n" {
		t.Errorf("the command ran more than once: %q", log.Content)
	}
	r.clean()
}

func TestStoppedWorkerUnderLoad(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	const grace = 2 * time.Second
	r := newRig(t, "DRAIN_GRACE", grace.String())
	const boxes, each = 6, 5
	var all []job
	var homes []string
	for range boxes {
		homes = append(homes, r.create(object{}).ID)
	}
	for n := range each {
		for i, box := range homes {
			seconds := 0.1
			if n == 1 { // half of them end within the grace, half do not
				seconds = float64(1 + 5*(i%2))
			}
			all = append(all, r.start(box, fmt.Sprintf("echo %d >> log; sleep %g; echo %d", n, seconds, n)))
		}
	}
	testenv.Eventually(t, "the long commands run", func() bool {
		for i := 1; i < boxes; i += 2 {
			if r.job(all[boxes+i].ID).State != "running" {
				return false
			}
		}
		return true
	})
	began := time.Now()
	first := r.worker
	r.startWorker()
	first.Stop()
	if took := time.Since(began); took > grace+5*time.Second {
		t.Errorf("the worker took %v to stop, its grace is %v", took, grace)
	}
	handedOver := 0
	for i, j := range all {
		j = r.end(j).succeeded(t)
		if j.Stdout != fmt.Sprintln(i/boxes) {
			t.Errorf("a command's output: %s", j)
		}
		if j.Attempt > 1 {
			handedOver++
		}
	}
	if handedOver == 0 {
		t.Error("no command outlived its worker, so little was tested")
	}
	for _, box := range homes {
		if log := r.file(box, "read", object{"path": "log"}); log.Content != "0\n1\n2\n3\n4\n" {
			t.Errorf("commands of a sandbox were started as %q", log.Content)
		}
	}
	r.clean()
}

func TestEverythingKilledUnderLoad(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	r := newRig(t)
	const old, young, each = 4, 4, 5
	var homes []string
	var all []job
	load := func(box string) {
		for n := range each {
			all = append(all, r.start(box, fmt.Sprintf("echo %d >> log; sleep 0.5; echo %d", n, n)))
		}
		homes = append(homes, box)
	}
	for range old {
		load(r.created(object{"memory_mb": 64}).ID)
	}
	again := func() accepted {
		return r.submit("/v1/sandboxes/"+homes[0]+"/exec", object{"command": "echo last >> log"}, "Idempotency-Key", "last")
	}
	last := again().Job
	for range young {
		load(r.create(object{"memory_mb": 64}).ID)
	}
	testenv.Eventually(t, "commands run and sandboxes are made", func() bool {
		return r.count("running") > old && strings.Contains(r.call("GET", "/v1/jobs?kind=create&state=running&fields=id", nil).raw, `"id"`)
	})
	r.each(func(p *process) { p.Signal(syscall.SIGKILL) })
	r.each(func(p *process) { p.Await(10 * time.Second) })
	r.startAPI()
	r.startWorker()
	r.scheduler = r.start1("scheduler")
	if repeated := again().Job; repeated.ID != last.ID {
		t.Errorf("a client that did not hear of its job %s and asked again got %s", last.ID, repeated.ID)
	}
	restarted := time.Now()
	attempts := 0
	for i, j := range all {
		if j = r.end(j).succeeded(t); j.Stdout != fmt.Sprintln(i%each) {
			t.Errorf("a command's output: %s", j)
		}
		attempts += j.Attempt
	}
	if took := time.Since(restarted); took > 30*time.Second {
		t.Errorf("it took %v from the restart to the last job's end", took)
	}
	if attempts == len(all) {
		t.Error("no command outlived its worker, so little was tested")
	}
	r.end(last).succeeded(t)
	for i, box := range homes {
		want := "0\n1\n2\n3\n4\n"
		if i == 0 {
			want += "last\n"
		}
		if log := r.file(box, "read", object{"path": "log"}); log.Content != want {
			t.Errorf("commands of a sandbox were started as %q, want %q", log.Content, want)
		}
	}
	if found := r.engine.containers(t); len(found) != old+young {
		t.Errorf("%d sandboxes are %d containers: %v", old+young, len(found), found)
	}
	r.clean()
}

func TestCancelKillsTheTree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{}).ID
	tree := r.start(box, "(trap '' TERM; sleep 1001; sleep 1001) & setsid sleep 1002 & nohup sleep 1003 >/dev/null 2>&1 & sleep 1004")
	sleepers := func() string {
		return r.exec(box, "ps -eo args | grep -c '^sleep 100'", object{"parallel": true}).Stdout
	}
	testenv.Eventually(t, "the tree has grown", func() bool { return sleepers() == "4\n" })
	r.call("POST", "/v1/jobs/"+tree.ID+"/cancel", nil).want(t, 200)
	if j := r.end(tree); j.State != "cancelled" {
		t.Errorf("the cancelled exec: %s", j)
	}
	if left := sleepers(); left != "0\n" {
		t.Errorf("processes of the cancelled command still run: %s", left)
	}
	if j := r.exec(box, "echo on"); j.Stdout != "on\n" {
		t.Errorf("the sandbox after the cancel: %s", j)
	}
	r.clean()
}

func TestForcedDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	busy := r.created(object{}).ID
	running, waiting := r.start(busy, "sleep 1000"), r.start(busy, "echo never")
	testenv.Eventually(t, "the command runs", func() bool { return r.job(running.ID).State == "running" })
	var young []sandbox
	for range 3 {
		young = append(young, r.create(object{}))
	}
	testenv.Eventually(t, "a sandbox is being made", func() bool {
		return strings.Contains(r.call("GET", "/v1/jobs?kind=create&state=running&fields=id", nil).raw, `"id"`)
	})
	var deletes []job
	for _, b := range append(young, sandbox{ID: busy}) {
		var out accepted
		decode(t, r.call("DELETE", "/v1/sandboxes/"+b.ID+"?force=true", nil).want(t, 202).raw, &out)
		deletes = append(deletes, out.Job)
	}
	for _, j := range deletes {
		r.end(j).succeeded(t)
	}
	for _, j := range []job{running, waiting} {
		if j = r.end(j); j.State != "cancelled" || j.Stdout != "" {
			t.Errorf("an exec of a sandbox that was deleted by force: %s", j)
		}
	}
	for _, b := range young {
		if b := r.sandbox(b.ID); b.State != "deleted" || b.EndReason != "deleted" {
			t.Errorf("a sandbox deleted while it was made: %+v", b)
		}
	}
	r.clean()
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.remove(r.created(object{}).ID) // the guest is on the engine from here on: a create takes its usual time
	cancelled := 0
	for range 50 {
		made := r.submit("/v1/sandboxes", object{})
		testenv.Eventually(t, "the create runs", func() bool { return r.job(made.Job.ID).State != "queued" })
		r.call("POST", "/v1/jobs/"+made.Job.ID+"/cancel", nil).want(t, 200)
		j := r.end(made.Job)
		if j.State == "succeeded" { // it was quicker than the cancel
			r.remove(j.SandboxID)
			continue
		}
		if j.State != "cancelled" {
			t.Errorf("the cancelled create: %s", j)
		}
		if b := r.sandbox(j.SandboxID); b.State != "failed" {
			t.Errorf("the sandbox of a cancelled create: %+v", b)
		}
		if cancelled++; cancelled == 6 {
			break
		}
	}
	if cancelled == 0 {
		t.Error("no create was cancelled")
	}
	testenv.Eventually(t, "what was half made is gone", func() bool { return len(r.engine.containers(t)) == 0 })
	r.clean()
}
