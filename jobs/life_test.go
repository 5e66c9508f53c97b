package jobs_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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
	r.worker(4)
	r.scheduler()
	box, created := r.create(jobs.CreateSandbox{})
	wrote := r.submit(box, &kind.Write{Path: "a", Content: "AAECAw==", Encoding: "base64"}, options())
	ran := r.exec(box, "fake:stdout out; fake:stderr err; fake:exit 3")
	read := r.submit(box, &kind.Read{Path: "a"}, options())
	gone, err := r.client.Delete(t.Context(), box, false, options())
	r.must(err)

	for _, id := range []string{created, wrote, ran, read, gone.Jobs[0].ID} {
		if j := r.wait(id); j.State != models.Succeeded {
			t.Errorf("%s ended %s: %+v", j.Kind, j.State, j.Error)
		}
	}
	j := r.job(ran)
	var res kind.ExecResult
	r.must(json.Unmarshal(j.Result, &res))
	if res.ExitCode != 3 || string(j.Stdout) != "out" || string(j.Stderr) != "err" {
		t.Errorf("exec: %+v, stdout %q, stderr %q", res, j.Stdout, j.Stderr)
	}
	if got := r.job(read).Content; string(got) != "\x00\x01\x02\x03" {
		t.Errorf("the file came back as %q", got)
	}
	if b := r.sandbox(box); b.State != models.SandboxDeleted || *b.EndReason != "deleted" || *b.EndActor != "test" {
		t.Errorf("sandbox: %+v", b)
	}
}

func TestOrderHoldsOverManySandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(10)
	r.worker(10)
	r.scheduler()
	const sandboxes, each = 20, 10
	var all, deletes []string
	boxes := make([]string, sandboxes)
	for i := range boxes {
		boxes[i], _ = r.create(jobs.CreateSandbox{})
	}
	for n := range each {
		for _, box := range boxes {
			all = append(all, r.exec(box, fmt.Sprintf("fake:sleep %dms; fake:append log %d,", rand.N(3), n)))
		}
	}
	logs := map[string]string{}
	for _, box := range boxes {
		logs[box] = r.submit(box, &kind.Read{Path: "log"}, options())
		out, err := r.client.Delete(t.Context(), box, false, options())
		r.must(err)
		deletes = append(deletes, out.Jobs[0].ID)
	}
	for _, id := range append(all, deletes...) {
		if j := r.wait(id); j.State != models.Succeeded {
			t.Fatalf("%s ended %s: %+v", j.Kind, j.State, j.Error)
		}
	}
	for box, id := range logs {
		if got := string(r.job(id).Content); got != "0,1,2,3,4,5,6,7,8,9," {
			t.Errorf("sandbox %s ran its jobs as %s", box, got)
		}
	}
}

func TestParallelJobsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{})
	slow := r.exec(box, "fake:sleep 1h")
	o := options()
	o.Parallel = true
	quick := r.submit(box, &kind.Exec{Command: "fake:stdout quick"}, o)
	if j := r.wait(quick); string(j.Stdout) != "quick" {
		t.Fatalf("parallel exec: %s %+v", j.State, j.Error)
	}
	r.eventually("the slow exec runs", func() bool { return r.job(slow).State == models.Running })
	if _, err := r.client.Cancel(t.Context(), tenant, slow, "test"); err != nil {
		t.Fatal(err)
	}
	if j := r.wait(slow); j.State != models.Cancelled {
		t.Fatalf("the cancelled exec is %s", j.State)
	}
}

// TestAKillWithoutAnAnswerIsMadeAgain: a cancel does not wait for it as long as the command may take.
func TestAKillWithoutAnAnswerIsMadeAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(2, func(c *worker.Config) { c.Lease = 3 * time.Second })
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.exec(box, "fake:sleep 1h")
	r.eventually("the command runs", func() bool { return r.state.Starts(exec) == 1 })
	r.state.Inject(fake.Fault{Op: fake.OpKill, Hang: true})
	_, err := r.client.Cancel(t.Context(), tenant, exec, "test")
	r.must(err)
	if j := r.wait(exec); j.State != models.Cancelled {
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
			r.worker(2, func(c *worker.Config) { c.Patience = 2 * time.Second })
			box, created := r.create(jobs.CreateSandbox{})
			r.wait(created)
			r.state.Inject(fake.Fault{Op: op, Hang: true})
			j := r.wait(r.submit(box, &kind.Exec{Command: "fake:append log x", TimeoutSeconds: limit}, options()))
			if j.State != models.Succeeded || j.Attempt < 2 || r.content(box, "log") != "x" {
				t.Fatalf("%s at attempt %d, and it ran as %q: %+v", j.State, j.Attempt, r.content(box, "log"), j.Error)
			}
		})
	}
}

func TestCancelledQueuedJobNeverRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.exec(box, "fake:append log x")
	j, err := r.client.Cancel(t.Context(), tenant, exec, "test")
	if err != nil || j.State != models.Cancelled {
		t.Fatalf("cancel: %s, %v", j.State, err)
	}
	next := r.exec(box, "fake:stdout next")
	r.worker(2)
	if j := r.wait(next); string(j.Stdout) != "next" {
		t.Fatalf("the job behind: %s %+v", j.State, j.Error)
	}
	if n := r.state.Starts(exec); n != 0 {
		t.Fatalf("the cancelled exec was started %d times", n)
	}
}

func TestTimedOutCommandKeepsItsOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	box, _ := r.create(jobs.CreateSandbox{})
	j := r.wait(r.submit(box, &kind.Exec{Command: "fake:stdout before; fake:sleep 1h", TimeoutSeconds: 0.2}, options()))
	if j.State != models.TimedOut || string(j.Stdout) != "before" || j.Error == nil || j.Error.Code != "timeout" {
		t.Fatalf("job: %s, stdout %q, %+v", j.State, j.Stdout, j.Error)
	}
}

func TestErrorsThatPassAreTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	busy := providers.Errorf(providers.Unavailable, "away")
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: busy}) // made, but the answer is lost
	r.state.Inject(fake.Fault{Op: fake.OpRun, After: true, Err: busy})
	box, created := r.create(jobs.CreateSandbox{})
	if j := r.wait(created); j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	exec := r.exec(box, "fake:append log x; fake:stdout done")
	if j := r.wait(exec); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Fatalf("exec: %s, %q, %+v", j.State, j.Stdout, j.Error)
	}
	if n := r.state.Starts(exec); n != 1 {
		t.Fatalf("the command was started %d times", n)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: providers.Errorf(providers.Invalid, "no such thing")})
	box, created := r.create(jobs.CreateSandbox{})
	exec := r.exec(box, "fake:stdout x")
	r.worker(2)
	if j := r.wait(created); j.State != models.Failed || j.Error.Code != string(providers.Invalid) {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if j := r.wait(exec); j.State != models.Failed || j.Error.Code != "sandbox_failed" {
		t.Fatalf("exec behind it: %s %+v", j.State, j.Error)
	}
	r.eventually("what was half made goes after the job's end", func() bool {
		left, err := fake.New(fake.Options{State: r.state}).List(t.Context())
		return err == nil && len(left) == 0
	})
}

func TestForcedDeleteDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{})
	running := r.exec(box, "fake:sleep 1h")
	waiting := r.exec(box, "fake:stdout never")
	r.eventually("the first exec runs", func() bool { return r.job(running).State == models.Running })
	out, err := r.client.Delete(t.Context(), box, true, options())
	r.must(err)
	if j := r.wait(out.Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("delete: %s %+v", j.State, j.Error)
	}
	for _, id := range []string{running, waiting} {
		if j := r.wait(id); j.State != models.Cancelled {
			t.Errorf("exec: %s %+v", j.State, j.Error)
		}
	}
}

func TestDeadSandboxEndsItsJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.exec(box, "fake:crash; fake:sleep 1h")
	behind := r.exec(box, "fake:stdout never")
	r.worker(4)
	if j := r.wait(exec); j.State != models.Lost {
		t.Errorf("the exec in it: %s %+v", j.State, j.Error)
	}
	if j := r.wait(behind); j.State != models.Failed || j.Error.Code != "sandbox_lost" {
		t.Errorf("the exec behind: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxLost || b.EndedAt == nil {
		t.Errorf("sandbox: %s, ended %v", b.State, b.EndedAt)
	}
}

func TestRunOnceRemovesItsSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	out, err := r.client.Run(t.Context(), jobs.RunOnce{
		Files: []kind.Write{{Path: "a", Content: "x"}, {Path: "b", Content: "y"}},
		Exec:  kind.Exec{Command: "fake:stdout ran"},
	}, options())
	r.must(err)
	var kinds []string
	for _, j := range out.Jobs {
		kinds = append(kinds, j.Kind)
		if got := r.wait(j.ID); got.State != models.Succeeded {
			t.Errorf("%s: %s %+v", got.Kind, got.State, got.Error)
		}
	}
	if got := strings.Join(kinds, " "); got != "create write_many exec delete" {
		t.Errorf("jobs: %s", got)
	}
	if b := r.sandbox(out.Sandbox.ID); b.State != models.SandboxDeleted {
		t.Errorf("sandbox: %s", b.State)
	}
}

func TestQueueDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler() // and no worker
	o := options()
	o.QueueDeadline = 100 * time.Millisecond
	out, err := r.client.Create(t.Context(), jobs.CreateSandbox{}, o)
	r.must(err)
	if j := r.wait(out.Jobs[0].ID); j.State != models.Expired || j.Error.Code != "queue_deadline" {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(out.Sandbox.ID); b.State != models.SandboxFailed {
		t.Fatalf("sandbox: %s", b.State)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{})
	if j := r.wait(r.submit(box, &kind.Pause{}, options())); j.State != models.Succeeded {
		t.Fatalf("pause: %s %+v", j.State, j.Error)
	}
	if j := r.wait(r.exec(box, "fake:stdout x")); j.State != models.Failed || j.Error.Code != string(providers.Paused) {
		t.Fatalf("exec while paused: %s %+v", j.State, j.Error)
	}
	if j := r.wait(r.submit(box, &kind.Resume{}, options())); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.wait(r.exec(box, "fake:stdout x")); j.State != models.Succeeded {
		t.Fatalf("exec afterwards: %s %+v", j.State, j.Error)
	}
}

func TestRetryMakesANewJobWithTheSameBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{})
	first := r.submit(box, &kind.Exec{Command: "fake:cat", Stdin: "bytes"}, options())
	if _, err := r.client.Retry(t.Context(), "job_unknown", options()); err != models.ErrNotFound { //nolint:errorlint // exactly this one
		t.Errorf("retry of an unknown job: %v", err)
	}
	r.wait(first)
	out, err := r.client.Retry(t.Context(), first, options())
	r.must(err)
	j := r.wait(out.Jobs[0].ID)
	if j.ID == first || string(j.Stdout) != "bytes" || *j.RetryOf != first {
		t.Fatalf("retry: %s, stdout %q, of %v", j.State, j.Stdout, j.RetryOf)
	}
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true}) // it is made, but nobody is told
	box, created := r.create(jobs.CreateSandbox{})
	r.eventually("the create runs", func() bool { return r.state.Calls(fake.OpCreate) == 1 })
	if _, err := r.client.Cancel(t.Context(), tenant, created, "test"); err != nil {
		t.Fatal(err)
	}
	if j := r.wait(created); j.State != models.Cancelled {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxFailed {
		t.Fatalf("sandbox: %s", b.State)
	}
	r.noResources()
}

func TestCreateThatEndsAfterItsSandboxLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Delay: 500 * time.Millisecond})
	box, created := r.create(jobs.CreateSandbox{})
	r.eventually("the create runs", func() bool { return r.state.Calls(fake.OpCreate) == 1 })
	out, err := r.client.Delete(t.Context(), box, true, options())
	r.must(err)
	r.wait(out.Jobs[0].ID)
	r.wait(created)
	if b := r.sandbox(box); b.State != models.SandboxDeleted {
		t.Fatalf("sandbox: %s", b.State)
	}
	r.noResources()
}

func TestLostSandboxIsRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	box, _ := r.create(jobs.CreateSandbox{})
	if j := r.wait(r.exec(box, "fake:crash")); j.State != models.Lost {
		t.Fatalf("exec: %s %+v", j.State, j.Error)
	}
	r.noResources()
}

// noResources waits until the backend is empty: what follows a job's end may come a moment after it.
func (r *rig) noResources() {
	r.t.Helper()
	p := fake.New(fake.Options{State: r.state})
	r.eventually("nothing is left on the backend", func() bool {
		left, err := p.List(r.t.Context())
		r.must(err)
		return len(left) == 0
	})
}

// TestAnAbsentProviderIsWaitedFor: an engine that is away for longer than six attempts take costs no job.
func TestAnAbsentProviderIsWaitedFor(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.state.Inject(fake.Fault{Op: fake.OpCreate, Times: 7, Err: providers.Errorf(providers.Unavailable, "the engine restarts")})
	r.state.Inject(fake.Fault{Op: fake.OpFile, Times: 100, Err: providers.Errorf(providers.Internal, "broken")})
	box, created := r.create(jobs.CreateSandbox{})
	if j := r.wait(created); j.State != models.Succeeded || j.Attempt != 8 {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	if j := r.wait(r.submit(box, &kind.Stat{Path: "x"}, options())); j.State != models.Failed || j.Attempt != 6 {
		t.Errorf("what is broken: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
}
