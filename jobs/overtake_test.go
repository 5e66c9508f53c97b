package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// slowPause lets a test decide when a pause comes about.
type slowPause struct {
	*fake.Provider
	begun   chan struct{}
	proceed chan struct{}
}

func (p slowPause) Pause(ctx context.Context, id string) error {
	close(p.begun)
	<-p.proceed
	return p.Provider.Pause(ctx, id)
}

func (r *rig) slowPauser() (slowPause, func(*worker.Config)) {
	p := slowPause{begun: make(chan struct{}), proceed: make(chan struct{})}
	return p, func(c *worker.Config) {
		p.Provider, _ = c.Provider.(*fake.Provider)
		c.Provider = p
	}
}

// late makes the sandboxes' timeouts be over.
func (r *rig) late() { r.sql("UPDATE sandboxes SET expires_at = now() - interval '1 minute'") }

// newest is the sandbox's last job of a kind.
func (r *rig) newest(box, kind string) models.Job {
	r.t.Helper()
	list, err := r.store.Jobs(r.t.Context(), tenant, models.JobFilter{Sandbox: box, Kind: kind, Limit: 1})
	r.must(err)
	if len(list) == 0 {
		r.t.Fatalf("there is no %s", kind)
	}
	return list[0]
}

// TestTimeoutStandsStillWhilePaused, also where it would delete the sandbox. With the resume it starts anew.
func TestTimeoutStandsStillWhilePaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	asleep, awake := r.readied(), r.readied()
	if j := r.wait(r.submit(asleep, &kind.Pause{}, options())); j.State != models.Succeeded {
		t.Fatalf("pause: %s %+v", j.State, j.Error)
	}
	r.late()
	r.scheduler()
	r.eventually("the running one is deleted", func() bool { return r.sandbox(awake).State == models.SandboxDeleted })
	if b := r.sandbox(asleep); b.State != models.SandboxPaused || b.EndReason != nil {
		t.Fatalf("the paused one is %s", b.State)
	}
	resume, behind := r.submit(asleep, &kind.Resume{}, options()), r.exec(asleep, "fake:exit 0")
	for _, job := range []string{resume, behind} {
		if j := r.wait(job); j.State != models.Succeeded {
			t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if b := r.sandbox(asleep); b.State != models.SandboxRunning || time.Until(b.ExpiresAt) < time.Minute {
		t.Errorf("resumed it is %s and expires at %v", b.State, b.ExpiresAt)
	}
}

// TestFrozenJobsDoNotKeepAPausedSandbox: they cannot end, so they are no use of it.
func TestFrozenJobsDoNotKeepAPausedSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{PausedTimeoutSeconds: 1})
	frozen := r.exec(box, "fake:sleep 1h")
	r.eventually("the command runs", func() bool { return r.job(frozen).State == models.Running })
	r.pauses(box)
	r.scheduler()
	r.eventually("the sandbox is deleted", func() bool { return r.sandbox(box).State == models.SandboxDeleted })
	if j := r.wait(frozen); j.State != models.Cancelled {
		t.Errorf("what was frozen is %s", j.State)
	}
}

// slowResume lets a test decide when a resume comes about.
type slowResume struct {
	*fake.Provider
	proceed chan struct{}
}

func (p slowResume) Resume(ctx context.Context, id string) error {
	<-p.proceed
	return p.Provider.Resume(ctx, id)
}

// TestDeleteOfAPausedSandbox waits for nothing that is frozen. Where a resume is on its way it comes in its turn.
func TestDeleteOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	for want, resumed := range map[models.JobState]bool{models.Cancelled: false, models.Succeeded: true} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proceed := make(chan struct{})
			r.worker(4, func(c *worker.Config) {
				inner, _ := c.Provider.(*fake.Provider)
				c.Provider = slowResume{inner, proceed}
			})
			r.scheduler() // a command that is given back after the resume waits for its delay
			box := r.readied()
			frozen := r.exec(box, "fake:sleep 1s; fake:stdout done")
			r.eventually("the command runs", func() bool { return r.job(frozen).State == models.Running })
			r.pauses(box)
			if resumed {
				r.submit(box, &kind.Resume{}, options())
			}
			out, err := r.client.Delete(t.Context(), box, false, options())
			r.must(err)
			close(proceed)
			if j := r.wait(out.Jobs[0].ID); j.State != models.Succeeded {
				t.Fatalf("delete: %s %+v", j.State, j.Error)
			}
			if j := r.wait(frozen); j.State != want {
				t.Errorf("what was frozen is %s, want %s", j.State, want)
			}
		})
	}
}

// TestResumeOfWhatIsBeingPaused comes after the pause, and before the command that it freezes.
func TestResumeOfWhatIsBeingPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slow, change := r.slowPauser()
	r.worker(4, change)
	box, _ := r.create(jobs.CreateSandbox{OnTimeout: "pause"})
	command := r.exec(box, "fake:sleep 1s; fake:stdout done")
	r.eventually("the command runs", func() bool { return r.job(command).State == models.Running })
	r.late()
	s := r.scheduler()
	<-slow.begun
	s.Stop() // the next pause would be its own
	resume := r.submit(box, &kind.Resume{TimeoutSeconds: 600}, options())
	r.eventually("the resume waits for the pause", func() bool { j := r.job(resume); return j.Attempt > 0 && j.RequeueReason != nil })
	if b := r.sandbox(box); b.State != models.SandboxRunning {
		t.Fatalf("the sandbox is %s", b.State)
	}
	close(slow.proceed)
	if j := r.wait(resume); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.wait(command); string(j.Stdout) != "done" {
		t.Errorf("the command: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning || time.Until(b.ExpiresAt) < 5*time.Minute {
		t.Errorf("it is %s, desired %s, until %v", b.State, b.Desired, b.ExpiresAt)
	}
}

// TestDuePauseThatIsOvertaken: while it waits for a worker, somebody connects, or sets the timeout anew.
func TestDuePauseThatIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]kind.Args{
		"timeout": &kind.SetTimeout{TimeoutSeconds: 600}, "resume": &kind.Resume{TimeoutSeconds: 600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker(4)
			box, created := r.create(jobs.CreateSandbox{OnTimeout: "pause"})
			r.wait(created)
			w.Stop(t.Context())
			r.late()
			s := r.scheduler()
			r.eventually("the pause is submitted", func() bool { return r.sandbox(box).Desired == models.DesiredPaused })
			s.Stop()
			later := r.submit(box, args, options())
			r.worker(4)
			if j := r.wait(later); j.State != models.Succeeded {
				t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
			}
			r.eventually("the pause has ended", func() bool { return r.newest(box, models.KindPause).State.Terminal() })
			if b := r.sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning || b.PauseFailedAt != nil {
				t.Errorf("it is %s, desired %s, failed %v", b.State, b.Desired, b.PauseFailedAt)
			}
			if j := r.newest(box, models.KindPause); j.State != models.Cancelled || j.Error == nil || j.Error.Code != "overtaken" {
				t.Errorf("the pause: %s %+v", j.State, j.Error)
			}
		})
	}
}

// brokenPause pauses, and says the first time that it could not; in between something happens.
type brokenPause struct {
	*fake.Provider
	struck  *atomic.Bool
	between func()
}

func (p brokenPause) Pause(ctx context.Context, id string) error {
	err := p.Provider.Pause(ctx, id)
	if p.struck.Swap(true) {
		return err
	}
	p.between()
	return errors.Join(err, providers.Errorf(providers.Unavailable, "the answer was lost"))
}

// TestDuePauseThatIsOvertakenOnItsWay: the first attempt has paused the sandbox and did not hear of it, the next finds that
// its timeout was set anew. Where somebody else has paused the sandbox meanwhile, it stays so.
func TestDuePauseThatIsOvertakenOnItsWay(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var box string
			meanwhile := func() {
				r.submit(box, &kind.SetTimeout{TimeoutSeconds: 600}, options())
				if again {
					r.pauses(box)
				}
			}
			r.worker(4, func(c *worker.Config) {
				inner, _ := c.Provider.(*fake.Provider)
				c.Provider = brokenPause{inner, new(atomic.Bool), meanwhile}
			})
			box = r.readied()
			r.sql("UPDATE sandboxes SET on_timeout = 'pause', expires_at = now() - interval '1 minute'")
			r.scheduler()
			r.eventually("the due pause has ended, at its second attempt", func() bool {
				list, err := r.store.Jobs(r.t.Context(), tenant, models.JobFilter{Sandbox: box, Kind: models.KindPause, Limit: 2})
				r.must(err)
				return slices.ContainsFunc(list, func(j models.Job) bool {
					return j.Actor == "scheduler" && j.State == models.Cancelled && j.Attempt == 2
				})
			})
			if j := r.wait(r.exec(box, "fake:stdout on")); (string(j.Stdout) == "on") == again {
				t.Errorf("a command afterwards: %s %q %+v", j.State, j.Stdout, j.Error)
			}
		})
	}
}

// TestOldPauseBehindAFrozenCommand: of a pause that waits for its turn and a resume that came later, the resume is what
// was wanted last.
func TestOldPauseBehindAFrozenCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box := r.readied()
	command := r.exec(box, "fake:input; fake:stdout done")
	r.eventually("the command runs", func() bool { return r.job(command).State == models.Running })
	queued := r.submit(box, &kind.Pause{}, options())
	r.pauses(box)
	if j := r.wait(r.submit(box, &kind.Resume{}, options())); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.Desired != models.DesiredRunning {
		t.Errorf("desired is %s", b.Desired)
	}
	_, err := r.client.Cancel(t.Context(), tenant, command, "test")
	r.must(err)
	if j := r.wait(queued); j.State != models.Cancelled || j.Error == nil || j.Error.Code != "overtaken" {
		t.Errorf("the old pause: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning {
		t.Errorf("it is %s, desired %s", b.State, b.Desired)
	}
}
