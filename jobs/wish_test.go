package jobs_test

import (
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// unable makes an operation fail as often as it is tried.
func (r *rig) unable(op fake.Op) {
	r.State.OnCall(func(called fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Op: op, Err: providers.NotSupported.Errorf("not with this one")}, called == op
	})
}

// jobOf returns the sandbox's only job of a kind as soon as it has ended.
func (r *rig) jobOf(box, kind string) models.Job {
	r.T.Helper()
	var list []models.Job
	r.Eventually("there is a "+kind, func() (ok bool) {
		var err error
		list, err = r.Store.Jobs(r.T.Context(), jobsrig.Tenant, models.JobFilter{Sandbox: box, Kind: kind, Limit: 1})
		r.Must(err)
		return len(list) > 0
	})
	return r.Wait(list[0].ID)
}

// TestADuePauseThatFailsIsTriedAgain: after a rest, and meanwhile the sandbox idles on.
func TestADuePauseThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.unable(fake.OpPause)
	box, created := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1, OnTimeout: "pause"})
	r.Wait(created)
	used := r.Sandbox(box).LastActiveAt
	r.Scheduler()
	if j := r.jobOf(box, models.KindPause); j.State != models.Failed {
		t.Fatalf("the pause: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning || b.PauseFailedAt == nil {
		t.Errorf("after a pause that failed the sandbox is %s, desired %s, and failed at %v", b.State, b.Desired, b.PauseFailedAt)
	}
	if now := r.Sandbox(box).LastActiveAt; !now.Equal(used) {
		t.Errorf("the scheduler's pause counts as use of the sandbox: %v, and before it %v", now, used)
	}
	r.SQL("UPDATE sandboxes SET pause_failed_at = now() + interval '1 hour'")
	tried := r.State.Calls(fake.OpPause)
	other, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.Eventually("the scheduler has looked again", func() bool { return r.Sandbox(other).State == models.SandboxDeleted })
	if n := r.State.Calls(fake.OpPause); n != tried {
		t.Errorf("the provider was asked %d times in its rest", n-tried)
	}
	r.State.OnCall(nil)
	r.SQL("UPDATE sandboxes SET pause_failed_at = now() - interval '1 minute'")
	r.Eventually("it is paused", func() bool { return r.Sandbox(box).State == models.SandboxPaused })
}

// TestWhatIsNotPausedOrResumedEndsInItsTime: a pause or a resume that fails leaves the sandbox to the other clocks.
func TestWhatIsNotPausedOrResumedEndsInItsTime(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, c := range map[string]struct {
		wish   jobs.CreateSandbox
		op     fake.Op
		args   []kind.Args // the last one fails
		reason string
	}{
		"a pause of an idle one":       {jobs.CreateSandbox{IdleTimeoutSeconds: 1}, fake.OpPause, []kind.Args{&kind.Pause{}}, "idle"},
		"a resume of one paused":       {jobs.CreateSandbox{PausedTimeoutSeconds: 1}, fake.OpResume, []kind.Args{&kind.Pause{}, &kind.Resume{}}, "paused_timeout"},
		"an idle one's pauses, always": {jobs.CreateSandbox{IdleTimeoutSeconds: 1, TimeoutSeconds: 1, OnTimeout: "pause"}, fake.OpPause, nil, "idle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Worker(4)
			r.unable(c.op)
			box, created := r.Create(c.wish)
			r.Wait(created)
			for i, args := range c.args {
				if j := r.Wait(r.Submit(box, args, jobsrig.Options())); (j.State == models.Failed) != (i == len(c.args)-1) {
					t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
				}
			}
			r.Scheduler() // not before: the times are short
			r.Eventually("the sandbox has ended", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
			if b := r.Sandbox(box); *b.EndReason != c.reason || *b.EndActor != "scheduler" {
				t.Errorf("ended for %s by %s", *b.EndReason, *b.EndActor)
			}
		})
	}
}

// TestTimeoutOfWhatNobodyMakes: what is still to be made cannot be paused, and ends.
func TestTimeoutOfWhatNobodyMakes(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	box, created := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1, OnTimeout: "pause"})
	r.SQL("UPDATE sandboxes SET expires_at = now() WHERE id = $1", box) // it has minutes for its start
	if j := r.Wait(created); j.State != models.Cancelled {
		t.Errorf("the create: %s %+v", j.State, j.Error)
	}
	r.Worker(2)
	r.Eventually("the sandbox has ended", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
	if b := r.Sandbox(box); *b.EndReason != "timeout" {
		t.Errorf("ended for %s at %v", *b.EndReason, b.EndedAt)
	}
}
