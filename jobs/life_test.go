package jobs_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

func TestEverythingSubmittedAtOnceRunsInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	box, created := r.Create(jobs.CreateSandbox{})
	wrote := r.Submit(box, &kind.Write{Path: "a", Content: "AAECAw==", Encoding: "base64"}, jobsrig.Options())
	ran := r.Exec(box, "fake:stdout out; fake:stderr err; fake:exit 3")
	read := r.Submit(box, &kind.Read{Path: "a"}, jobsrig.Options())
	gone, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
	r.Must(err)

	for _, id := range []string{created, wrote, ran, read, gone.Jobs[0].ID} {
		if j := r.Wait(id); j.State != models.Succeeded {
			t.Errorf("%s ended %s: %+v", j.Kind, j.State, j.Error)
		}
	}
	j := r.Job(ran)
	var res kind.ExecResult
	r.Must(json.Unmarshal(j.Result, &res))
	if res.ExitCode != 3 || string(j.Stdout) != "out" || string(j.Stderr) != "err" {
		t.Errorf("exec: %+v, stdout %q, stderr %q", res, j.Stdout, j.Stderr)
	}
	if got := r.Job(read).Content; string(got) != "\x00\x01\x02\x03" {
		t.Errorf("the file came back as %q", got)
	}
	if b := r.Sandbox(box); b.State != models.SandboxDeleted || *b.EndReason != "deleted" || *b.EndActor != "test" {
		t.Errorf("sandbox: %+v", b)
	}
}

func TestOrderHoldsOverManySandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(10)
	r.Worker(10)
	r.Scheduler()
	const sandboxes, each = 20, 10
	var all, deletes []string
	boxes := make([]string, sandboxes)
	for i := range boxes {
		boxes[i], _ = r.Create(jobs.CreateSandbox{})
	}
	for n := range each {
		for _, box := range boxes {
			all = append(all, r.Exec(box, fmt.Sprintf("fake:sleep %dms; fake:append log %d,", rand.N(3), n)))
		}
	}
	logs := map[string]string{}
	for _, box := range boxes {
		logs[box] = r.Submit(box, &kind.Read{Path: "log"}, jobsrig.Options())
		out, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
		r.Must(err)
		deletes = append(deletes, out.Jobs[0].ID)
	}
	for _, id := range append(all, deletes...) {
		if j := r.Wait(id); j.State != models.Succeeded {
			t.Fatalf("%s ended %s: %+v", j.Kind, j.State, j.Error)
		}
	}
	for box, id := range logs {
		if got := string(r.Job(id).Content); got != "0,1,2,3,4,5,6,7,8,9," {
			t.Errorf("sandbox %s ran its jobs as %s", box, got)
		}
	}
}

func TestParallelJobsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{})
	slow := r.Exec(box, "fake:sleep 1h")
	o := jobsrig.Options()
	o.Parallel = true
	quick := r.Submit(box, &kind.Exec{Command: "fake:stdout quick"}, o)
	if j := r.Wait(quick); string(j.Stdout) != "quick" {
		t.Fatalf("parallel exec: %s %+v", j.State, j.Error)
	}
	r.Eventually("the slow exec runs", func() bool { return r.Job(slow).State == models.Running })
	if _, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, slow, "test"); err != nil {
		t.Fatal(err)
	}
	if j := r.Wait(slow); j.State != models.Cancelled {
		t.Fatalf("the cancelled exec is %s", j.State)
	}
}

// TestAKillWithoutAnAnswerIsMadeAgain: a cancel does not wait for it as long as the command may take.
func TestAKillWithoutAnAnswerIsMadeAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(2, func(c *worker.Config) { c.Lease = 3 * time.Second })
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:sleep 1h")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	r.State.Inject(fake.Fault{Op: fake.OpKill, Hang: true})
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, exec, "test")
	r.Must(err)
	if j := r.Wait(exec); j.State != models.Cancelled {
		t.Fatalf("the cancelled exec is %s", j.State)
	}
}

// TestAProviderThatHangsIsGivenUp long before a command that may run for hours.
func TestAProviderThatHangsIsGivenUp(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for op, limit := range map[fake.Op]float64{fake.OpOpen: 3600, fake.OpRun: 5} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Worker(2, func(c *worker.Config) { c.Patience = 2 * time.Second })
			box, created := r.Create(jobs.CreateSandbox{})
			r.Wait(created)
			r.State.Inject(fake.Fault{Op: op, Hang: true})
			j := r.Wait(r.Submit(box, &kind.Exec{Command: "fake:append log x", TimeoutSeconds: limit}, jobsrig.Options()))
			if j.State != models.Succeeded || j.Attempt < 2 || r.Content(box, "log") != "x" {
				t.Fatalf("%s at attempt %d, and it ran as %q: %+v", j.State, j.Attempt, r.Content(box, "log"), j.Error)
			}
		})
	}
}

func TestCancelledQueuedJobNeverRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:append log x")
	j, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, exec, "test")
	if err != nil || j.State != models.Cancelled {
		t.Fatalf("cancel: %s, %v", j.State, err)
	}
	next := r.Exec(box, "fake:stdout next")
	r.Worker(2)
	if j := r.Wait(next); string(j.Stdout) != "next" {
		t.Fatalf("the job behind: %s %+v", j.State, j.Error)
	}
	if n := r.State.Starts(exec); n != 0 {
		t.Fatalf("the cancelled exec was started %d times", n)
	}
}

func TestTimedOutCommandKeepsItsOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	box, _ := r.Create(jobs.CreateSandbox{})
	j := r.Wait(r.Submit(box, &kind.Exec{Command: "fake:stdout before; fake:sleep 1h", TimeoutSeconds: 0.2}, jobsrig.Options()))
	if j.State != models.TimedOut || string(j.Stdout) != "before" || j.Error == nil || j.Error.Code != "timeout" {
		t.Fatalf("job: %s, stdout %q, %+v", j.State, j.Stdout, j.Error)
	}
}

func TestErrorsThatPassAreTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	busy := providers.Unavailable.Errorf("away")
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: busy}) // made, but the answer is lost
	r.State.Inject(fake.Fault{Op: fake.OpRun, After: true, Err: busy})
	box, created := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(created); j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	exec := r.Exec(box, "fake:append log x; fake:stdout done")
	if j := r.Wait(exec); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Fatalf("exec: %s, %q, %+v", j.State, j.Stdout, j.Error)
	}
	if n := r.State.Starts(exec); n != 1 {
		t.Fatalf("the command was started %d times", n)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: providers.Invalid.Errorf("no such thing")})
	box, created := r.Create(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:stdout x")
	r.Worker(2)
	if j := r.Wait(created); j.State != models.Failed || j.Error.Code != string(providers.Invalid) {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(exec); j.State != models.Failed || j.Error.Code != "sandbox_failed" {
		t.Fatalf("exec behind it: %s %+v", j.State, j.Error)
	}
	r.Eventually("what was half made goes after the job's end", func() bool {
		left, err := fake.New(fake.Options{State: r.State}).List(t.Context())
		return err == nil && len(left) == 0
	})
}

func TestForcedDeleteDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{})
	running := r.Exec(box, "fake:sleep 1h")
	waiting := r.Exec(box, "fake:stdout never")
	r.Eventually("the first exec runs", func() bool { return r.Job(running).State == models.Running })
	out, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
	r.Must(err)
	if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("delete: %s %+v", j.State, j.Error)
	}
	for _, id := range []string{running, waiting} {
		if j := r.Wait(id); j.State != models.Cancelled {
			t.Errorf("exec: %s %+v", j.State, j.Error)
		}
	}
}

func TestDeadSandboxEndsItsJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:crash; fake:sleep 1h")
	behind := r.Exec(box, "fake:stdout never")
	r.Worker(4)
	if j := r.Wait(exec); j.State != models.Lost {
		t.Errorf("the exec in it: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(behind); j.State != models.Failed || j.Error.Code != "sandbox_lost" {
		t.Errorf("the exec behind: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxLost || b.EndedAt == nil {
		t.Errorf("sandbox: %s, ended %v", b.State, b.EndedAt)
	}
}

func TestRunOnceRemovesItsSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	out, err := r.Client.Run(t.Context(), jobs.RunOnce{
		Files: []kind.Write{{Path: "a", Content: "x"}, {Path: "b", Content: "y"}},
		Exec:  kind.Exec{Command: "fake:stdout ran"},
	}, jobsrig.Options())
	r.Must(err)
	var kinds []string
	for _, j := range out.Jobs {
		kinds = append(kinds, j.Kind)
		if got := r.Wait(j.ID); got.State != models.Succeeded {
			t.Errorf("%s: %s %+v", got.Kind, got.State, got.Error)
		}
	}
	if got := strings.Join(kinds, " "); got != "create write_many exec delete" {
		t.Errorf("jobs: %s", got)
	}
	if b := r.Sandbox(out.Sandbox.ID); b.State != models.SandboxDeleted {
		t.Errorf("sandbox: %s", b.State)
	}
}

func TestQueueDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler() // and no worker
	o := jobsrig.Options()
	o.QueueDeadline = 100 * time.Millisecond
	out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{}, o)
	r.Must(err)
	if j := r.Wait(out.Jobs[0].ID); j.State != models.Expired || j.Error.Code != "queue_deadline" {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(out.Sandbox.ID); b.State != models.SandboxFailed {
		t.Fatalf("sandbox: %s", b.State)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("pause: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(r.Exec(box, "fake:stdout x")); j.State != models.Failed || j.Error.Code != string(providers.Paused) {
		t.Fatalf("exec while paused: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(r.Exec(box, "fake:stdout x")); j.State != models.Succeeded {
		t.Fatalf("exec afterwards: %s %+v", j.State, j.Error)
	}
}

func TestRetryMakesANewJobWithTheSameBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{})
	first := r.Submit(box, &kind.Exec{Command: "fake:cat", Stdin: "bytes"}, jobsrig.Options())
	if _, err := r.Client.Retry(t.Context(), "job_unknown", jobsrig.Options()); err != models.ErrNotFound { //nolint:errorlint // exactly this one
		t.Errorf("retry of an unknown job: %v", err)
	}
	r.Wait(first)
	out, err := r.Client.Retry(t.Context(), first, jobsrig.Options())
	r.Must(err)
	j := r.Wait(out.Jobs[0].ID)
	if j.ID == first || string(j.Stdout) != "bytes" || *j.RetryOf != first {
		t.Fatalf("retry: %s, stdout %q, of %v", j.State, j.Stdout, j.RetryOf)
	}
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true}) // it is made, but nobody is told
	box, created := r.Create(jobs.CreateSandbox{})
	r.Eventually("the create runs", func() bool { return r.State.Calls(fake.OpCreate) == 1 })
	if _, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, created, "test"); err != nil {
		t.Fatal(err)
	}
	if j := r.Wait(created); j.State != models.Cancelled {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxFailed {
		t.Fatalf("sandbox: %s", b.State)
	}
	r.noResources()
}

func TestCreateThatEndsAfterItsSandboxLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Delay: 500 * time.Millisecond})
	box, created := r.Create(jobs.CreateSandbox{})
	r.Eventually("the create runs", func() bool { return r.State.Calls(fake.OpCreate) == 1 })
	out, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	r.Wait(created)
	if b := r.Sandbox(box); b.State != models.SandboxDeleted {
		t.Fatalf("sandbox: %s", b.State)
	}
	r.noResources()
}

func TestLostSandboxIsRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	box, _ := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(r.Exec(box, "fake:crash")); j.State != models.Lost {
		t.Fatalf("exec: %s %+v", j.State, j.Error)
	}
	r.noResources()
}

// noResources waits until the backend is empty: what follows a job's end may come a moment after it.
func (r *rig) noResources() {
	r.T.Helper()
	p := fake.New(fake.Options{State: r.State})
	r.Eventually("nothing is left on the backend", func() bool {
		left, err := p.List(r.T.Context())
		r.Must(err)
		return len(left) == 0
	})
}

// TestAnAbsentProviderIsWaitedFor: an engine that is away for longer than six attempts take costs no job.
func TestAnAbsentProviderIsWaitedFor(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.State.Inject(fake.Fault{Op: fake.OpCreate, Times: 7, Err: providers.Unavailable.Errorf("the engine restarts")})
	r.State.Inject(fake.Fault{Op: fake.OpFile, Times: 100, Err: providers.Internal.Errorf("broken")})
	box, created := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(created); j.State != models.Succeeded || j.Attempt != 8 {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	if j := r.Wait(r.Submit(box, &kind.Stat{Path: "x"}, jobsrig.Options())); j.State != models.Failed || j.Attempt != 6 {
		t.Errorf("what is broken: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
}
