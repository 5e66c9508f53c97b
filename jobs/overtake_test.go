package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
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
func (r *rig) late() { r.SQL("UPDATE sandboxes SET expires_at = now() - interval '1 minute'") }

// newest is the sandbox's last job of a kind.
func (r *rig) newest(box, kind string) models.Job {
	r.T.Helper()
	list, err := r.Store.Jobs(r.T.Context(), jobsrig.Tenant, models.JobFilter{Sandbox: box, Kind: kind, Limit: 1})
	r.Must(err)
	if len(list) == 0 {
		r.T.Fatalf("there is no %s", kind)
	}
	return list[0]
}

// TestTimeoutStandsStillWhilePaused, also where it would delete the sandbox. With the resume it starts anew.
func TestTimeoutStandsStillWhilePaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	asleep, awake := r.readied(), r.readied()
	if j := r.Wait(r.Submit(asleep, &kind.Pause{}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("pause: %s %+v", j.State, j.Error)
	}
	r.late()
	r.Scheduler()
	r.Eventually("the running one is deleted", func() bool { return r.Sandbox(awake).State == models.SandboxDeleted })
	if b := r.Sandbox(asleep); b.State != models.SandboxPaused || b.EndReason != nil {
		t.Fatalf("the paused one is %s", b.State)
	}
	resume, behind := r.Submit(asleep, &kind.Resume{}, jobsrig.Options()), r.Exec(asleep, "fake:exit 0")
	for _, job := range []string{resume, behind} {
		if j := r.Wait(job); j.State != models.Succeeded {
			t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if b := r.Sandbox(asleep); b.State != models.SandboxRunning || time.Until(b.ExpiresAt) < time.Minute {
		t.Errorf("resumed it is %s and expires at %v", b.State, b.ExpiresAt)
	}
}

// TestFrozenJobsDoNotKeepAPausedSandbox: they cannot end, so they are no use of it.
func TestFrozenJobsDoNotKeepAPausedSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{PausedTimeoutSeconds: 1})
	frozen := r.Exec(box, "fake:sleep 1h")
	r.Eventually("the command runs", func() bool { return r.Job(frozen).State == models.Running })
	r.pauses(box)
	r.Scheduler()
	r.Eventually("the sandbox is deleted", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
	if j := r.Wait(frozen); j.State != models.Cancelled {
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

func (r *rig) slowResumer() (proceed chan struct{}, change func(*worker.Config)) {
	proceed = make(chan struct{})
	return proceed, func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = slowResume{inner, proceed}
	}
}

// TestDeleteOfAPausedSandbox waits for nothing that is frozen. Where a resume is on its way it comes in its turn.
func TestDeleteOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	for want, resumed := range map[models.JobState]bool{models.Cancelled: false, models.Succeeded: true} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proceed, change := r.slowResumer()
			r.Worker(4, change)
			r.Scheduler() // a command that is given back after the resume waits for its delay
			box := r.readied()
			frozen := r.Exec(box, "fake:sleep 1s; fake:stdout done")
			r.Eventually("the command runs", func() bool { return r.Job(frozen).State == models.Running })
			r.pauses(box)
			if resumed {
				r.Submit(box, &kind.Resume{}, jobsrig.Options())
			}
			out, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
			r.Must(err)
			close(proceed)
			if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
				t.Fatalf("delete: %s %+v", j.State, j.Error)
			}
			if j := r.Wait(frozen); j.State != want {
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
	r.Worker(4, change)
	box, _ := r.Create(jobs.CreateSandbox{OnTimeout: "pause"})
	command := r.Exec(box, "fake:sleep 1s; fake:stdout done")
	r.Eventually("the command runs", func() bool { return r.Job(command).State == models.Running })
	r.late()
	s := r.Scheduler()
	<-slow.begun
	s.Stop() // the next pause would be its own
	resume := r.Submit(box, &kind.Resume{TimeoutSeconds: 600}, jobsrig.Options())
	r.Eventually("the resume waits for the pause", func() bool { j := r.Job(resume); return j.Attempt > 0 && j.RequeueReason != nil })
	if b := r.Sandbox(box); b.State != models.SandboxRunning {
		t.Fatalf("the sandbox is %s", b.State)
	}
	close(slow.proceed)
	if j := r.Wait(resume); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(command); string(j.Stdout) != "done" {
		t.Errorf("the command: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning || time.Until(b.ExpiresAt) < 5*time.Minute {
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
			w := r.Worker(4)
			box, created := r.Create(jobs.CreateSandbox{OnTimeout: "pause"})
			r.Wait(created)
			w.Stop(t.Context())
			r.late()
			s := r.Scheduler()
			r.Eventually("the pause is submitted", func() bool { return r.Sandbox(box).Desired == models.DesiredPaused })
			s.Stop()
			later := r.Submit(box, args, jobsrig.Options())
			r.Worker(4)
			if j := r.Wait(later); j.State != models.Succeeded {
				t.Fatalf("%s: %s %+v", j.Kind, j.State, j.Error)
			}
			r.Eventually("the pause has ended", func() bool { return r.newest(box, models.KindPause).State.Terminal() })
			if b := r.Sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning || b.PauseFailedAt != nil {
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
	return errors.Join(err, providers.Unavailable.Errorf("the answer was lost"))
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
				r.Submit(box, &kind.SetTimeout{TimeoutSeconds: 600}, jobsrig.Options())
				if again {
					r.pauses(box)
				}
			}
			r.Worker(4, func(c *worker.Config) {
				inner, _ := c.Provider.(*fake.Provider)
				c.Provider = brokenPause{inner, new(atomic.Bool), meanwhile}
			})
			box = r.readied()
			r.SQL("UPDATE sandboxes SET on_timeout = 'pause', expires_at = now() - interval '1 minute'")
			r.Scheduler()
			r.Eventually("the due pause has ended, at its second attempt", func() bool {
				list, err := r.Store.Jobs(r.T.Context(), jobsrig.Tenant, models.JobFilter{Sandbox: box, Kind: models.KindPause, Limit: 2})
				r.Must(err)
				return slices.ContainsFunc(list, func(j models.Job) bool {
					return j.Actor == "scheduler" && j.State == models.Cancelled && j.Attempt == 2
				})
			})
			if j := r.Wait(r.Exec(box, "fake:stdout on")); (string(j.Stdout) == "on") == again {
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
	r.Worker(4)
	r.Scheduler() // a worker that meets the pause before it is written down looks again later
	box := r.readied()
	command := r.Exec(box, "fake:input; fake:stdout done")
	r.Eventually("the command runs", func() bool { return r.Job(command).State == models.Running })
	queued := r.Submit(box, &kind.Pause{}, jobsrig.Options())
	r.pauses(box)
	if j := r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.Desired != models.DesiredRunning {
		t.Errorf("desired is %s", b.Desired)
	}
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, command, "test")
	r.Must(err)
	if j := r.Wait(queued); j.State != models.Cancelled || j.Error == nil || j.Error.Code != "overtaken" {
		t.Errorf("the old pause: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning {
		t.Errorf("it is %s, desired %s", b.State, b.Desired)
	}
}
