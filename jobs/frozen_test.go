package jobs_test

import (
	"context"
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

// pauses freezes a sandbox with all that runs in it.
func (r *rig) pauses(box string) {
	r.t.Helper()
	o := options()
	o.Parallel = true
	if j := r.wait(r.submit(box, &kind.Pause{}, o)); j.State != models.Succeeded {
		r.t.Fatalf("pause: %s %+v", j.State, j.Error)
	}
}

func (r *rig) resumes(box string) {
	r.t.Helper()
	if j := r.wait(r.submit(box, &kind.Resume{}, options())); j.State != models.Succeeded {
		r.t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
}

// started submits a job and returns once it is running.
func (r *rig) started(box string, args kind.Args, o jobs.Options) string {
	r.t.Helper()
	id := r.submit(box, args, o)
	r.eventually(args.Kind()+" runs", func() bool { return r.job(id).State == models.Running })
	return id
}

// parked waits until nobody has a job any more, nor takes it.
func (r *rig) parked(id string) models.Job {
	r.t.Helper()
	var j models.Job
	r.eventually("the job waits for the resume", func() bool {
		j = r.job(id)
		return j.State == models.Queued && j.ReadyAt == nil
	})
	return j
}

// TestFrozenProgramsAreHandedOver: the worker goes away while what it waits for stands still in a paused sandbox. It is nobody's
// then, whatever is asked of the sandbox, and goes on with it.
func TestFrozenProgramsAreHandedOver(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	parallel := options()
	parallel.Parallel = true
	for how, o := range map[string]jobs.Options{"ordered": options(), "parallel": parallel} {
		for name, args := range map[string]kind.Args{
			"command": &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"},
			"cell":    &kind.Code{Language: "python", Code: "fake:sleep 1s; fake:stdout done"},
		} {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				first := r.worker(4)
				r.scheduler()
				box := r.readied()
				job := r.started(box, args, o)
				r.pauses(box)
				first.Stop(context.Background())
				r.worker(4)
				was := r.parked(job)
				if j := r.wait(r.submit(box, &kind.Read{Path: "x"}, parallel)); j.State != models.Failed || j.Error.Code != "sandbox_paused" {
					t.Errorf("a file of the paused sandbox: %s %+v", j.State, j.Error)
				}
				if is := r.job(job); is.Attempt != was.Attempt || is.ReadyAt != nil {
					t.Errorf("what is frozen was touched: attempt %d, ready %v", is.Attempt, is.ReadyAt)
				}
				r.resumes(box)
				if j := r.wait(job); j.State != models.Succeeded || string(j.Stdout) != "done" {
					t.Errorf("after the resume: %s %+v, output %q", j.State, j.Error, j.Stdout)
				}
				if n := r.state.Starts(job); name == "command" && n != 1 {
					t.Errorf("the command was started %d times", n)
				}
			})
		}
	}
}

// TestFrozenProgramsKeepNobodyBusy: a worker all of whose slots had commands that are frozen still resumes their sandboxes, which
// is not for what is frozen to ask for, and the commands have what was left of their time.
func TestFrozenProgramsKeepNobodyBusy(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(1)
	r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{AutoResume: true})
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:sleep 500ms; fake:stdout done", TimeoutSeconds: 2}, options())
	r.eventually("the command has begun", func() bool { return r.state.Starts(job) == 1 })
	behind := r.exec(box, "fake:stdout behind")
	r.must(fake.New(fake.Options{State: r.state}).Pause(t.Context(), box)) // there is no slot for a job that does it
	r.sql("UPDATE sandboxes SET state = 'paused', desired = 'paused', paused_at = now() - interval '1 hour' WHERE id = $1", box)
	r.sql("UPDATE jobs SET started_at = now() - interval '2 hours' WHERE id = $1", job)
	r.parked(job)
	begun := r.job(job).StartedAt.Add(2 * time.Hour)
	r.eventually("its time is over by the clock in the sandbox", func() bool { return time.Since(begun) > 2*time.Second })
	if b := r.sandbox(box); b.State != models.SandboxPaused {
		t.Errorf("what is frozen had the sandbox resumed: it is %s", b.State)
	}
	r.resumes(box)
	j := r.wait(job)
	if j.State != models.Succeeded || string(j.Stdout) != "done" || r.state.Starts(job) != 1 {
		t.Errorf("it was started %d times and is %s %+v, output %q", r.state.Starts(job), j.State, j.Error, j.Stdout)
	}
	if p := j.Paused(); p < time.Hour || p > time.Hour+patience {
		t.Errorf("it was paused for %v, want an hour", p)
	}
	if j := r.wait(behind); j.State != models.Succeeded {
		t.Errorf("the command behind: %s %+v", j.State, j.Error)
	}
}

// TestProgramsCancelledWhileNobodyHasThem are killed by whoever takes them next, and are cancelled only then.
func TestProgramsCancelledWhileNobodyHasThem(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, args := range map[string]kind.Args{
		"command": &kind.Exec{Command: "fake:append log x; fake:sleep 1h"},
		"cell":    &kind.Code{Language: "python", Code: "fake:append log x; fake:sleep 1h"},
	} {
		for how, paused := range map[string]bool{"handed over": false, "frozen": true} {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.scheduler()
				first := r.worker(4)
				box := r.readied()
				job := r.started(box, args, options())
				r.eventually("it has begun", func() bool { return r.content(box, "log") == "x" })
				if paused {
					r.pauses(box)
				}
				first.Stop(context.Background())
				_, err := r.client.Cancel(t.Context(), tenant, job, "test")
				r.must(err)
				if j := r.job(job); j.State != models.Queued || j.CancelRequestedAt == nil {
					t.Errorf("with nobody to kill it, it is %s, asked at %v", j.State, j.CancelRequestedAt)
				}
				r.worker(4)
				if paused {
					r.parked(job)
					r.resumes(box)
				}
				if j := r.wait(job); j.State != models.Cancelled {
					t.Errorf("it is %s %+v", j.State, j.Error)
				}
				r.eventually("nothing of it runs any more", func() bool { return r.state.Running(box) == 0 }) // a context that heeds no interrupt is killed
				if log := r.content(box, "log"); log != "x" {
					t.Errorf("it ran as %q", log)
				}
			})
		}
	}
}

// TestCommandCancelledBeforeItBegan never does, though it has been tried.
func TestCommandCancelledBeforeItBegan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	r.scheduler()
	box := r.readied()
	r.state.Inject(fake.Fault{Op: fake.OpRun, Err: &providers.Error{Class: providers.RateLimited, Message: "wait", RetryAfter: 2 * time.Second}})
	job := r.exec(box, "fake:stdout done")
	r.eventually("it was given back", func() bool { j := r.job(job); return j.State == models.Queued && j.Attempt == 1 })
	_, err := r.client.Cancel(t.Context(), tenant, job, "test")
	r.must(err)
	if j := r.wait(job); j.State != models.Cancelled || r.state.Starts(job) > 0 {
		t.Errorf("it is %s and was started %d times", j.State, r.state.Starts(job))
	}
}

// TestProgramsFrozenBehindOurBack go on with the resume that somebody asks for.
func TestProgramsFrozenBehindOurBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.worker(4, reconciling(0))
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"}, options())
	r.eventually("it has begun", func() bool { return r.state.Starts(job) == 1 })
	resume := r.submit(box, &kind.Resume{}, options()) // behind the command
	r.must(fake.New(fake.Options{State: r.state}).Pause(t.Context(), box))
	for _, id := range []string{resume, job} {
		if j := r.wait(id); j.State != models.Succeeded {
			t.Errorf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning {
		t.Errorf("the sandbox is %s, wanted %s", b.State, b.Desired)
	}
}

// TestFrozenProgramsGoOnWithAResumeBehindOurBack, which reconciling finds out.
func TestFrozenProgramsGoOnWithAResumeBehindOurBack(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	first := r.worker(4)
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"}, options())
	r.pauses(box)
	first.Stop(context.Background())
	r.worker(4, reconciling(0))
	r.parked(job)
	r.must(fake.New(fake.Options{State: r.state}).Resume(t.Context(), box))
	if j := r.wait(job); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Errorf("it is %s %+v, output %q", j.State, j.Error, j.Stdout)
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning {
		t.Errorf("the sandbox is %s", b.State)
	}
}

// TestWaitsForWhatIsFrozenAreHandedOver: they go on waiting, on another worker, too.
func TestWaitsForWhatIsFrozenAreHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.worker(4)
	r.scheduler()
	box := r.readied()
	exec := r.background(box, "fake:sleep 1s; fake:exit 7")
	wait := r.started(box, &kind.ExecWait{ExecRef: ref(exec)}, options())
	r.pauses(box)
	first.Stop(context.Background())
	r.worker(4)
	r.eventually("the second worker waits", func() bool { j := r.job(wait); return j.State == models.Running && j.Attempt > 1 })
	r.resumes(box)
	if j := r.wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 7 {
		t.Errorf("it is %s %+v %s", j.State, j.Error, j.Result)
	}
}

// TestCellsOfOneContextAfterAPause: one runs and one waits for its turn; whoever comes back first, both run, once and in turn, and
// one that is cancelled before its turn never does.
func TestCellsOfOneContextAfterAPause(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, cancelled := range map[string]bool{"all": false, "one cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.worker(4)
			r.scheduler()
			box := r.readied()
			parallel := options()
			parallel.Parallel = true
			first := r.submit(box, &kind.Code{Language: "python", Code: "fake:append log a; fake:sleep 2s; fake:append log b"}, parallel)
			r.eventually("the first runs", func() bool { return r.content(box, "log") == "a" })
			parallel.Priority = 100 // comes back first
			second := r.started(box, &kind.Code{Language: "python", Code: "fake:append log c"}, parallel)
			r.pauses(box)
			r.parked(first)
			r.parked(second)
			want := map[string]models.JobState{first: models.Succeeded, second: models.Succeeded}
			if cancelled {
				_, err := r.client.Cancel(t.Context(), tenant, second, "test")
				r.must(err)
				want[second] = models.Cancelled
			}
			r.resumes(box)
			for job, state := range want {
				if j := r.wait(job); j.State != state {
					t.Errorf("%s: %s %+v %s", job, j.State, j.Error, j.Result)
				}
			}
			if log, all := r.content(box, "log"), map[bool]string{false: "abc", true: "ab"}[cancelled]; log != all {
				t.Errorf("they ran as %q, want %q", log, all)
			}
		})
	}
}

// TestPlainDeleteBehindAResumeThatFails does not wait for what only a resume would thaw.
func TestPlainDeleteBehindAResumeThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proceed := make(chan struct{})
	r.worker(4, func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = slowResume{inner, proceed}
	})
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1h"}, options())
	r.pauses(box)
	r.parked(job)
	resume := r.started(box, &kind.Resume{}, options())
	out, err := r.client.Delete(t.Context(), box, false, options())
	r.must(err)
	r.state.Inject(fake.Fault{Op: fake.OpResume, Err: &providers.Error{Class: providers.NotSupported, Message: "no"}})
	close(proceed)
	if j := r.wait(resume); j.State != models.Failed {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.wait(out.Jobs[0].ID); j.State != models.Succeeded {
		t.Errorf("delete: %s %+v", j.State, j.Error)
	}
	if j := r.wait(job); j.State != models.Cancelled {
		t.Errorf("what was frozen: %s %+v", j.State, j.Error)
	}
}

// TestCommandAfterAPauseResumes what has auto_resume, though it found the sandbox still running.
func TestCommandAfterAPauseResumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slow, change := r.slowPauser()
	r.worker(4, change)
	r.scheduler()
	box, created := r.create(jobs.CreateSandbox{AutoResume: true})
	r.wait(created)
	o := options()
	o.Parallel = true
	pause := r.submit(box, &kind.Pause{}, o)
	<-slow.begun
	late := r.started(box, &kind.Exec{Command: "fake:sleep 500ms; fake:stdout done"}, options())
	close(slow.proceed)
	r.wait(pause)
	if j := r.wait(late); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Errorf("it is %s %+v, output %q", j.State, j.Error, j.Stdout)
	}
}

// TestFrozenCommandOfALostSandbox: nobody can say how it ended.
func TestFrozenCommandOfALostSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1h"}, options())
	r.pauses(box)
	r.parked(job)
	r.state.Crash(box)
	if j := r.wait(r.submit(box, &kind.Resume{}, options())); j.State != models.Failed {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.wait(job); j.State != models.Lost || j.Error.Code != "sandbox_lost" {
		t.Errorf("it is %s %+v", j.State, j.Error)
	}
}
