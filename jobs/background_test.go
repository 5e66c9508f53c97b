package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

func (r *rig) exec1(j models.Job) (e providers.Exec) {
	r.T.Helper()
	r.Must(json.Unmarshal(j.Result, &e))
	return e
}

func TestBackgroundExecGoesOnBesideOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Background(box, "fake:input; fake:exit 4")
	long := r.Exec(box, "fake:sleep 1h") // in the order of the sandbox: what follows must not wait for it
	r.Eventually("the long exec runs", func() bool { return r.Job(long).State == models.Running })

	waiting := r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())
	if j := r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec), TimeoutSeconds: 0.2}, jobsrig.Options())); j.State != models.TimedOut || !r.exec1(j).Running {
		t.Errorf("a short wait: %s %s", j.State, j.Result)
	}
	for _, args := range []kind.Args{
		&kind.ExecStdin{ExecRef: jobsrig.Ref(exec), Data: "aGk=", Encoding: "base64"},
		&kind.ExecStdin{ExecRef: jobsrig.Ref(exec), EOF: true},
	} {
		if j := r.Wait(r.Submit(box, args, jobsrig.Options())); j.State != models.Succeeded {
			t.Errorf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if j := r.Wait(waiting); j.State != models.Succeeded || *r.exec1(j).ExitCode != 4 || r.exec1(j).StdoutBytes != 2 {
		t.Errorf("the wait: %s %+v %s", j.State, j.Error, j.Result)
	}
	if j := r.Wait(r.Submit(box, &kind.ExecSignal{ExecRef: jobsrig.Ref(exec), Signal: "int"}, jobsrig.Options())); j.State != models.Failed || j.Error.Code != "exec_ended" {
		t.Errorf("a signal to what has ended: %s %+v", j.State, j.Error)
	}
	other := r.Background(box, "fake:sleep 1h")
	if j := r.Wait(r.Submit(box, &kind.ExecSignal{ExecRef: jobsrig.Ref(other), Signal: "int"}, jobsrig.Options())); j.State != models.Succeeded {
		t.Errorf("signal: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(other)}, jobsrig.Options())); r.exec1(j).Signal != "SIGINT" {
		t.Errorf("interrupted: %s %s", j.State, j.Result)
	}
	for range 2 { // the second finds nothing to do
		if j := r.Wait(r.Submit(box, &kind.ExecDelete{ExecRef: jobsrig.Ref(other)}, jobsrig.Options())); j.State != models.Succeeded {
			t.Errorf("delete: %s %+v", j.State, j.Error)
		}
	}
	if j := r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(other)}, jobsrig.Options())); j.State != models.Failed || j.Error.Code != "exec_not_found" {
		t.Errorf("a wait for what is deleted: %s %+v", j.State, j.Error)
	}
	if r.Job(long).State != models.Running {
		t.Error("the long exec has ended")
	}
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, long, "test")
	r.Must(err)
	r.Wait(long)
}

// TestWaitsTakeNoSlots holds a hundred waits against a worker of two slots and a window of 64: what waits is in neither.
func TestWaitsTakeNoSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Background(box, "fake:sleep 1h")
	const many = 100
	waits := make([]string, many)
	for i := range waits {
		waits[i] = r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec), TimeoutSeconds: 600}, jobsrig.Options())
	}
	count := func(state models.JobState) int {
		list, err := r.Store.Jobs(t.Context(), jobsrig.Tenant, models.JobFilter{Kind: models.KindExecWait, State: state, Limit: many + 1})
		r.Must(err)
		return len(list)
	}
	r.Eventually("all waits run", func() bool { return count(models.Running) == many })
	for n := range 3 {
		if j := r.Wait(r.Exec(box, fmt.Sprintf("fake:stdout %d", n))); string(j.Stdout) != fmt.Sprint(n) {
			t.Fatalf("an exec beside the waits: %s %+v", j.State, j.Error)
		}
	}
	if n := count(models.Succeeded); n != 0 {
		t.Errorf("%d waits have ended already", n)
	}
	if looks := r.State.Calls(fake.OpBackground); looks > 20 {
		t.Errorf("%d waits for one exec made %d calls to its sandbox", many, looks)
	}
	if j := r.Wait(r.Submit(box, &kind.ExecDelete{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())); j.State != models.Failed && j.State != models.Succeeded {
		t.Errorf("delete: %s %+v", j.State, j.Error)
	}
	for _, id := range waits {
		j := r.Wait(id)
		if known := j.State == models.Failed && j.Error.Code == "exec_not_found"; !known && (j.State != models.Succeeded || r.exec1(j).Running) {
			t.Errorf("wait: %s %+v %s", j.State, j.Error, j.Result)
		}
	}
}

func TestWaitOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.Worker(2)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Background(box, "fake:input; fake:exit 7")
	wait := r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())
	r.Eventually("the wait runs", func() bool { return r.Job(wait).State == models.Running })
	r.Worker(2)
	first.Stop(context.Background())
	if j := r.Wait(r.Submit(box, &kind.ExecStdin{ExecRef: jobsrig.Ref(exec), EOF: true}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("input through the second worker: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 7 || j.Attempt < 2 {
		t.Errorf("wait: %s at attempt %d %+v %s", j.State, j.Attempt, j.Error, j.Result)
	}
	if n := r.State.Starts(exec); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

func TestWaitSurvivesAPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Background(box, "fake:input; fake:exit 0")
	wait := r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())
	r.Eventually("the wait runs", func() bool { return r.Job(wait).State == models.Running })
	for _, args := range []kind.Args{&kind.Pause{}, &kind.Resume{}, &kind.ExecStdin{ExecRef: jobsrig.Ref(exec), EOF: true}} {
		if j := r.Wait(r.Submit(box, args, jobsrig.Options())); j.State != models.Succeeded {
			t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if j := r.Wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 0 {
		t.Errorf("wait: %s %+v %s", j.State, j.Error, j.Result)
	}
}

func TestRetriedStartAndInputHappenOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	away := providers.Unavailable.Errorf("away")
	r.State.Inject(fake.Fault{Op: fake.OpBackground, After: true, Err: away})
	exec := r.Background(box, "fake:input")
	if n := r.State.Starts(exec); n != 1 || r.Job(exec).Attempt < 2 {
		t.Errorf("started %d times in %d attempts", n, r.Job(exec).Attempt)
	}
	r.State.Inject(fake.Fault{Op: fake.OpBackground, After: true, Err: away})
	if j := r.Wait(r.Submit(box, &kind.ExecStdin{ExecRef: jobsrig.Ref(exec), Data: "once", EOF: true}, jobsrig.Options())); j.State != models.Succeeded || j.Attempt < 2 {
		t.Errorf("input: %s at attempt %d %+v", j.State, j.Attempt, j.Error)
	}
	if j := r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())); r.exec1(j).StdoutBytes != 4 {
		t.Errorf("it read %s", j.Result)
	}
}

func TestCancelOfAWaitLeavesTheExec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Background(box, "fake:sleep 1h")
	wait := r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())
	r.Eventually("the wait runs", func() bool { return r.Job(wait).State == models.Running })
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, wait, "test")
	r.Must(err)
	if j := r.Wait(wait); j.State != models.Cancelled {
		t.Errorf("wait: %s", j.State)
	}
	if j := r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec), TimeoutSeconds: 0.1}, jobsrig.Options())); !r.exec1(j).Running {
		t.Errorf("the exec: %s", j.Result)
	}
}

func TestBackgroundIsRefusedWhereItMakesNoSense(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	for name, args := range map[string]kind.Args{
		"input that stays open in front": &kind.Exec{Command: "fake:exit 0", StdinOpen: true},
		"no data":                        &kind.ExecStdin{ExecRef: jobsrig.Ref("job_0")},
		"no exec":                        &kind.ExecWait{},
		"another name":                   &kind.ExecDelete{ExecRef: jobsrig.Ref("code.python")},
		"a path":                         &kind.ExecDelete{ExecRef: jobsrig.Ref("job_/../x")},
		"no signal":                      &kind.ExecSignal{ExecRef: jobsrig.Ref("job_0"), Signal: "SIGNOTHING"},
		"no process":                     &kind.SignalProcess{Signal: "TERM"},
		"the guest's process":            &kind.SignalProcess{Pid: 1, Signal: "TERM"},
		"no signal to a process":         &kind.SignalProcess{Pid: 9, Signal: "SIGNOTHING"},
		"too long":                       &kind.ExecWait{ExecRef: jobsrig.Ref("job_0"), TimeoutSeconds: 1e6},
	} {
		if _, err := r.Client.Submit(t.Context(), box, args, jobsrig.Options()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := r.Client.Run(t.Context(), jobs.RunOnce{Exec: kind.Exec{Command: "fake:exit 0", Background: true}}, jobsrig.Options()); err == nil {
		t.Error("a background exec in a run: accepted")
	}
}
