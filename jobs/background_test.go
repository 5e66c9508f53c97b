package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// background starts a command that goes on and returns the exec's id.
func (r *rig) background(box, script string) string {
	r.t.Helper()
	o := options()
	o.Parallel = true
	j := r.wait(r.submit(box, &kind.Exec{Command: script, Background: true, StdinOpen: true}, o))
	var res kind.BackgroundResult
	if j.State == models.Succeeded {
		r.must(json.Unmarshal(j.Result, &res))
	}
	if res.ExecID != j.ID || res.Pid == 0 {
		r.t.Fatalf("the start of %q: %s %+v %s", script, j.State, j.Error, j.Result)
	}
	return res.ExecID
}

func (r *rig) exec1(j models.Job) (e providers.Exec) {
	r.t.Helper()
	r.must(json.Unmarshal(j.Result, &e))
	return e
}

func ref(exec string) kind.ExecRef { return kind.ExecRef{ExecID: exec} }

func TestBackgroundExecGoesOnBesideOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.background(box, "fake:input; fake:exit 4")
	long := r.exec(box, "fake:sleep 1h") // in the order of the sandbox: what follows must not wait for it
	r.eventually("the long exec runs", func() bool { return r.job(long).State == models.Running })

	waiting := r.submit(box, &kind.ExecWait{ExecRef: ref(exec)}, options())
	if j := r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(exec), TimeoutSeconds: 0.2}, options())); j.State != models.TimedOut || !r.exec1(j).Running {
		t.Errorf("a short wait: %s %s", j.State, j.Result)
	}
	for _, args := range []kind.Args{
		&kind.ExecStdin{ExecRef: ref(exec), Data: "aGk=", Encoding: "base64"},
		&kind.ExecStdin{ExecRef: ref(exec), EOF: true},
	} {
		if j := r.wait(r.submit(box, args, options())); j.State != models.Succeeded {
			t.Errorf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if j := r.wait(waiting); j.State != models.Succeeded || *r.exec1(j).ExitCode != 4 || r.exec1(j).StdoutBytes != 2 {
		t.Errorf("the wait: %s %+v %s", j.State, j.Error, j.Result)
	}
	if j := r.wait(r.submit(box, &kind.ExecSignal{ExecRef: ref(exec), Signal: "int"}, options())); j.State != models.Failed || j.Error.Code != "exec_ended" {
		t.Errorf("a signal to what has ended: %s %+v", j.State, j.Error)
	}
	other := r.background(box, "fake:sleep 1h")
	if j := r.wait(r.submit(box, &kind.ExecSignal{ExecRef: ref(other), Signal: "int"}, options())); j.State != models.Succeeded {
		t.Errorf("signal: %s %+v", j.State, j.Error)
	}
	if j := r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(other)}, options())); r.exec1(j).Signal != "SIGINT" {
		t.Errorf("interrupted: %s %s", j.State, j.Result)
	}
	for range 2 { // the second finds nothing to do
		if j := r.wait(r.submit(box, &kind.ExecDelete{ExecRef: ref(other)}, options())); j.State != models.Succeeded {
			t.Errorf("delete: %s %+v", j.State, j.Error)
		}
	}
	if j := r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(other)}, options())); j.State != models.Failed || j.Error.Code != "exec_not_found" {
		t.Errorf("a wait for what is deleted: %s %+v", j.State, j.Error)
	}
	if r.job(long).State != models.Running {
		t.Error("the long exec has ended")
	}
	_, err := r.client.Cancel(t.Context(), tenant, long, "test")
	r.must(err)
	r.wait(long)
}

// TestWaitsTakeNoSlots holds a hundred waits against a worker of two slots and a window of 64: what waits is in neither.
func TestWaitsTakeNoSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.background(box, "fake:sleep 1h")
	const many = 100
	waits := make([]string, many)
	for i := range waits {
		waits[i] = r.submit(box, &kind.ExecWait{ExecRef: ref(exec), TimeoutSeconds: 600}, options())
	}
	count := func(state models.JobState) int {
		list, err := r.store.Jobs(t.Context(), tenant, models.JobFilter{Kind: models.KindExecWait, State: state, Limit: many + 1})
		r.must(err)
		return len(list)
	}
	r.eventually("all waits run", func() bool { return count(models.Running) == many })
	for n := range 3 {
		if j := r.wait(r.exec(box, fmt.Sprintf("fake:stdout %d", n))); string(j.Stdout) != fmt.Sprint(n) {
			t.Fatalf("an exec beside the waits: %s %+v", j.State, j.Error)
		}
	}
	if n := count(models.Succeeded); n != 0 {
		t.Errorf("%d waits have ended already", n)
	}
	if looks := r.state.Calls(fake.OpBackground); looks > 20 {
		t.Errorf("%d waits for one exec made %d calls to its sandbox", many, looks)
	}
	if j := r.wait(r.submit(box, &kind.ExecDelete{ExecRef: ref(exec)}, options())); j.State != models.Failed && j.State != models.Succeeded {
		t.Errorf("delete: %s %+v", j.State, j.Error)
	}
	for _, id := range waits {
		j := r.wait(id)
		if known := j.State == models.Failed && j.Error.Code == "exec_not_found"; !known && (j.State != models.Succeeded || r.exec1(j).Running) {
			t.Errorf("wait: %s %+v %s", j.State, j.Error, j.Result)
		}
	}
}

func TestWaitOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.worker(2)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.background(box, "fake:input; fake:exit 7")
	wait := r.submit(box, &kind.ExecWait{ExecRef: ref(exec)}, options())
	r.eventually("the wait runs", func() bool { return r.job(wait).State == models.Running })
	r.worker(2)
	first.Stop(context.Background())
	if j := r.wait(r.submit(box, &kind.ExecStdin{ExecRef: ref(exec), EOF: true}, options())); j.State != models.Succeeded {
		t.Fatalf("input through the second worker: %s %+v", j.State, j.Error)
	}
	if j := r.wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 7 || j.Attempt < 2 {
		t.Errorf("wait: %s at attempt %d %+v %s", j.State, j.Attempt, j.Error, j.Result)
	}
	if n := r.state.Starts(exec); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

func TestWaitSurvivesAPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.background(box, "fake:input; fake:exit 0")
	wait := r.submit(box, &kind.ExecWait{ExecRef: ref(exec)}, options())
	r.eventually("the wait runs", func() bool { return r.job(wait).State == models.Running })
	for _, args := range []kind.Args{&kind.Pause{}, &kind.Resume{}, &kind.ExecStdin{ExecRef: ref(exec), EOF: true}} {
		if j := r.wait(r.submit(box, args, options())); j.State != models.Succeeded {
			t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if j := r.wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 0 {
		t.Errorf("wait: %s %+v %s", j.State, j.Error, j.Result)
	}
}

func TestRetriedStartAndInputHappenOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.scheduler()
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	away := providers.Errorf(providers.Unavailable, "away")
	r.state.Inject(fake.Fault{Op: fake.OpBackground, After: true, Err: away})
	exec := r.background(box, "fake:input")
	if n := r.state.Starts(exec); n != 1 || r.job(exec).Attempt < 2 {
		t.Errorf("started %d times in %d attempts", n, r.job(exec).Attempt)
	}
	r.state.Inject(fake.Fault{Op: fake.OpBackground, After: true, Err: away})
	if j := r.wait(r.submit(box, &kind.ExecStdin{ExecRef: ref(exec), Data: "once", EOF: true}, options())); j.State != models.Succeeded || j.Attempt < 2 {
		t.Errorf("input: %s at attempt %d %+v", j.State, j.Attempt, j.Error)
	}
	if j := r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(exec)}, options())); r.exec1(j).StdoutBytes != 4 {
		t.Errorf("it read %s", j.Result)
	}
}

func TestCancelOfAWaitLeavesTheExec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.background(box, "fake:sleep 1h")
	wait := r.submit(box, &kind.ExecWait{ExecRef: ref(exec)}, options())
	r.eventually("the wait runs", func() bool { return r.job(wait).State == models.Running })
	_, err := r.client.Cancel(t.Context(), tenant, wait, "test")
	r.must(err)
	if j := r.wait(wait); j.State != models.Cancelled {
		t.Errorf("wait: %s", j.State)
	}
	if j := r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(exec), TimeoutSeconds: 0.1}, options())); !r.exec1(j).Running {
		t.Errorf("the exec: %s", j.Result)
	}
}

func TestBackgroundIsRefusedWhereItMakesNoSense(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.create(jobs.CreateSandbox{})
	for name, args := range map[string]kind.Args{
		"input that stays open in front": &kind.Exec{Command: "fake:exit 0", StdinOpen: true},
		"no data":                        &kind.ExecStdin{ExecRef: ref("job_0")},
		"no exec":                        &kind.ExecWait{},
		"another name":                   &kind.ExecDelete{ExecRef: ref("code.python")},
		"a path":                         &kind.ExecDelete{ExecRef: ref("job_/../x")},
		"no signal":                      &kind.ExecSignal{ExecRef: ref("job_0"), Signal: "SIGNOTHING"},
		"no process":                     &kind.SignalProcess{Signal: "TERM"},
		"the guest's process":            &kind.SignalProcess{Pid: 1, Signal: "TERM"},
		"no signal to a process":         &kind.SignalProcess{Pid: 9, Signal: "SIGNOTHING"},
		"too long":                       &kind.ExecWait{ExecRef: ref("job_0"), TimeoutSeconds: 1e6},
	} {
		if _, err := r.client.Submit(t.Context(), box, args, options()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := r.client.Run(t.Context(), jobs.RunOnce{Exec: kind.Exec{Command: "fake:exit 0", Background: true}}, options()); err == nil {
		t.Error("a background exec in a run: accepted")
	}
}
