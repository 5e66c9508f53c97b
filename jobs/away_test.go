package jobs_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/faultproxy"
	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// outage breaks the next calls behind the one whose text holds what. Heartbeats are spared, so that the lease lives.
func outage(proxy *faultproxy.Proxy, what string, calls int64) (left *atomic.Int64) {
	begun := new(atomic.Bool)
	left = new(atomic.Int64)
	left.Store(calls)
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case strings.Contains(c.Text, "INTO nodes"), strings.Contains(c.Text, "held"), strings.HasPrefix(c.Text, "prepare"):
		case begun.Load():
			if left.Add(-1) >= 0 {
				return faultproxy.CutBefore
			}
		case strings.Contains(c.Text, what):
			begun.Store(true)
		}
		return faultproxy.None
	})
	return left
}

const claiming = "attempt = attempt + 1"

// TestDatabaseAwayInsideARunningJob: it says nothing about the job, whatever the kind, and costs no attempt.
func TestDatabaseAwayInsideARunningJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, wired := r.Wire()
	r.Worker(4, wired)
	box, created := "", ""
	for _, job := range []func() string{
		func() string { box, created = r.Create(jobs.CreateSandbox{}); return created },
		func() string { return r.Submit(box, &kind.SetTimeout{TimeoutSeconds: 600}, jobsrig.Options()) },
		func() string { return r.Exec(box, "fake:append log x") },
		func() string { return r.Submit(box, &kind.Write{Path: "a", Content: "b"}, jobsrig.Options()) },
		func() string { return r.Submit(box, &kind.Pause{}, jobsrig.Options()) },
		func() string { return r.Submit(box, &kind.Resume{}, jobsrig.Options()) },
		func() string { return r.Submit(box, &kind.Delete{}, jobsrig.Options()) },
	} {
		left := outage(proxy, claiming, 5)
		id := job()
		j := r.Wait(id)
		if j.State != models.Succeeded || j.Attempt != 1 {
			t.Errorf("%s: %s at attempt %d, %+v", j.Kind, j.State, j.Attempt, j.Error)
		}
		if n := r.State.Starts(id); n > 1 {
			t.Errorf("%s: started %d times", j.Kind, n)
		}
		if left.Load() > 0 {
			t.Errorf("%s: the outage did not meet it", j.Kind)
		}
	}
}

// TestDatabaseAwayLongerThanALease: the job is another attempt's then, which attaches to the command.
func TestDatabaseAwayLongerThanALease(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	proxy, wired := r.Wire()
	r.Worker(2, wired, func(c *worker.Config) { c.Lease = time.Second })
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	exec := r.Exec(box, "fake:stdout a; fake:sleep 500ms; fake:append log x; fake:stdout b")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	proxy.Away()
	r.Eventually("the lease is over", func() bool { return r.Job(exec).State == models.Queued })
	proxy.Back()
	if j := r.Wait(exec); j.State != models.Succeeded || string(j.Stdout) != "ab" {
		t.Errorf("exec: %s, stdout %q, %+v", j.State, j.Stdout, j.Error)
	}
	if n := r.State.Starts(exec); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
	if got := r.Wait(r.Submit(box, &kind.Read{Path: "log"}, jobsrig.Options())); string(got.Content) != "x" {
		t.Errorf("the command's trace is %q", got.Content)
	}
}

// TestEndWrittenWithoutAnAnswerIsFollowedUp: what the end asks for is done, though nobody said that it was written.
func TestEndWrittenWithoutAnAnswerIsFollowedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, wired := r.Wire()
	r.Worker(2, wired)
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	forgotten := r.State.Calls(fake.OpForget)
	var finishing, cut atomic.Bool
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		if strings.Contains(c.Text, `"provider_ms"`) && !strings.HasPrefix(c.Text, "prepare") {
			finishing.Store(true)
		}
		if strings.HasSuffix(strings.ToLower(c.Text), "commit") && finishing.Load() && !cut.Swap(true) {
			return faultproxy.CutAfter
		}
		return faultproxy.None
	})
	exec := r.Exec(box, "fake:stdout x")
	if j := r.Wait(exec); j.State != models.Succeeded || j.Attempt != 1 || !cut.Load() {
		t.Fatalf("exec: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	r.Eventually("the command's output is dropped in the sandbox", func() bool { return r.State.Calls(fake.OpForget) == forgotten+1 })
}

// TestClaimIsNotAnswered: the worker asks again, and need not wait for the lease that it was given without knowing. Of a
// connection that falls silent it gives the claim up with the lease it asked for.
func TestClaimIsNotAnswered(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, c := range map[string]struct {
		f     faultproxy.Fault
		lease time.Duration
	}{"cut before": {faultproxy.CutBefore, time.Hour}, "cut after": {faultproxy.CutAfter, time.Hour}, "silent before": {faultproxy.Hang, 2 * time.Second}, "silent after": {faultproxy.HangAfter, 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Scheduler()
			proxy, wired := r.Wire()
			r.Worker(1, wired, func(w *worker.Config) { w.Lease = c.lease })
			var struck atomic.Bool
			proxy.On(func(call faultproxy.Call) faultproxy.Fault {
				if strings.Contains(call.Text, claiming) && !strings.HasPrefix(call.Text, "prepare") && !struck.Swap(true) {
					return c.f
				}
				return faultproxy.None
			})
			_, created := r.Create(jobs.CreateSandbox{})
			if j := r.Wait(created); j.State != models.Succeeded || !struck.Load() {
				t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
			}
		})
	}
}

// TestFileGoneByAnUnansweredAttempt: what the first attempt has moved or removed is no file_not_found of the second.
func TestFileGoneByAnUnansweredAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	box, _ := r.Create(jobs.CreateSandbox{})
	r.Wait(r.Submit(box, &kind.Write{Path: "a", Content: "x"}, jobsrig.Options()))
	for _, args := range []kind.Args{&kind.Move{From: "a", To: "b"}, &kind.Remove{Path: "b"}} {
		r.State.Inject(fake.Fault{Op: fake.OpFile, After: true, Err: providers.Unavailable.Errorf("away")})
		if j := r.Wait(r.Submit(box, args, jobsrig.Options())); j.State != models.Succeeded || j.Attempt != 2 {
			t.Errorf("%s: %s at attempt %d, %+v", j.Kind, j.State, j.Attempt, j.Error)
		}
		if j := r.Wait(r.Submit(box, args, jobsrig.Options())); j.State != models.Failed || j.Error.Code != "file_not_found" {
			t.Errorf("%s of what was never there: %s, %+v", j.Kind, j.State, j.Error)
		}
	}
}

// TestProviderAsksToBeLeftAlone: its Retry-After is heeded, where it is longer than our own backoff.
func TestProviderAsksToBeLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	_, created := r.Create(jobs.CreateSandbox{Image: "fake:rate-limited_1500ms"})
	j := r.Wait(created)
	if j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	if took := j.FinishedAt.Sub(*j.StartedAt); took < 1500*time.Millisecond {
		t.Errorf("it was tried again after %v", took)
	}
}

// TestDatabaseAwayWhenAJobFindsItsSandboxPaused: whether it resumes by itself is not known then, so the job asks again.
func TestDatabaseAwayWhenAJobFindsItsSandboxPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{AutoResume: true})
	r.Submit(box, &kind.Write{Path: "a", Content: "x"}, jobsrig.Options())
	r.Submit(box, &kind.Pause{}, jobsrig.Options())
	read := r.Submit(box, &kind.Read{Path: "a"}, jobsrig.Options()) // when it was submitted nothing was paused that could be resumed
	proxy, wired := r.Wire()
	var struck atomic.Bool
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		asks := strings.HasPrefix(c.Text, `SELECT * FROM "sandboxes" WHERE tenant_id`)
		if asks && !struck.Swap(true) {
			return faultproxy.CutBefore
		}
		return faultproxy.None
	})
	r.Worker(2, wired)
	if j := r.Wait(read); j.State != models.Succeeded || string(j.Content) != "x" {
		t.Errorf("read: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	if !struck.Load() {
		t.Error("the outage did not meet it")
	}
}
