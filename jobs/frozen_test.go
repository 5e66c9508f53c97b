package jobs_test

import (
	"context"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// pauses freezes a sandbox with all that runs in it.
func (r *rig) pauses(box string) {
	r.T.Helper()
	o := jobsrig.Options()
	o.Parallel = true
	if j := r.Wait(r.Submit(box, &kind.Pause{}, o)); j.State != models.Succeeded {
		r.T.Fatalf("pause: %s %+v", j.State, j.Error)
	}
}

func (r *rig) resumes(box string) {
	r.T.Helper()
	if j := r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options())); j.State != models.Succeeded {
		r.T.Fatalf("resume: %s %+v", j.State, j.Error)
	}
}

// started submits a job and returns once it is running.
func (r *rig) started(box string, args kind.Args, o jobs.Options) string {
	r.T.Helper()
	id := r.Submit(box, args, o)
	r.Eventually(args.Kind()+" runs", func() bool { return r.Job(id).State == models.Running })
	return id
}

// parked waits until nobody has a job any more, nor takes it.
func (r *rig) parked(id string) models.Job {
	r.T.Helper()
	var j models.Job
	r.Eventually("the job waits for the resume", func() bool {
		j = r.Job(id)
		return j.State == models.Queued && j.ReadyAt == nil
	})
	return j
}

// TestFrozenProgramsAreHandedOver: the worker goes away while what it waits for stands still in a paused sandbox. It is nobody's
// then, whatever is asked of the sandbox, and goes on with it.
func TestFrozenProgramsAreHandedOver(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	parallel := jobsrig.Options()
	parallel.Parallel = true
	for how, o := range map[string]jobs.Options{"ordered": jobsrig.Options(), "parallel": parallel} {
		for name, args := range map[string]kind.Args{
			"command": &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"},
			"cell":    &kind.Code{Language: "python", Code: "fake:sleep 1s; fake:stdout done"},
		} {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				first := r.Worker(4)
				r.Scheduler()
				box := r.readied()
				job := r.started(box, args, o)
				r.pauses(box)
				first.Stop(context.Background())
				r.Worker(4)
				was := r.parked(job)
				if j := r.Wait(r.Submit(box, &kind.Read{Path: "x"}, parallel)); j.State != models.Failed || j.Error.Code != "sandbox_paused" {
					t.Errorf("a file of the paused sandbox: %s %+v", j.State, j.Error)
				}
				if is := r.Job(job); is.Attempt != was.Attempt || is.ReadyAt != nil {
					t.Errorf("what is frozen was touched: attempt %d, ready %v", is.Attempt, is.ReadyAt)
				}
				r.resumes(box)
				if j := r.Wait(job); j.State != models.Succeeded || string(j.Stdout) != "done" {
					t.Errorf("after the resume: %s %+v, output %q", j.State, j.Error, j.Stdout)
				}
				if n := r.State.Starts(job); name == "command" && n != 1 {
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
	r.Worker(1)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{AutoResume: true})
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:sleep 500ms; fake:stdout done", TimeoutSeconds: 2}, jobsrig.Options())
	r.Eventually("the command has begun", func() bool { return r.State.Starts(job) == 1 })
	behind := r.Exec(box, "fake:stdout behind")
	r.Must(fake.New(fake.Options{State: r.State}).Pause(t.Context(), box)) // there is no slot for a job that does it
	r.SQL("UPDATE sandboxes SET state = 'paused', desired = 'paused', paused_at = now() - interval '1 hour' WHERE id = $1", box)
	r.SQL("UPDATE jobs SET started_at = now() - interval '2 hours' WHERE id = $1", job)
	r.parked(job)
	begun := r.Job(job).StartedAt.Add(2 * time.Hour)
	r.Eventually("its time is over by the clock in the sandbox", func() bool { return time.Since(begun) > 2*time.Second })
	if b := r.Sandbox(box); b.State != models.SandboxPaused {
		t.Errorf("what is frozen had the sandbox resumed: it is %s", b.State)
	}
	r.resumes(box)
	j := r.Wait(job)
	if j.State != models.Succeeded || string(j.Stdout) != "done" || r.State.Starts(job) != 1 {
		t.Errorf("it was started %d times and is %s %+v, output %q", r.State.Starts(job), j.State, j.Error, j.Stdout)
	}
	if p := j.Paused(); p < time.Hour || p > time.Hour+testenv.Patience() {
		t.Errorf("it was paused for %v, want an hour", p)
	}
	if j := r.Wait(behind); j.State != models.Succeeded {
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
				r.Scheduler()
				first := r.Worker(4)
				box := r.readied()
				job := r.started(box, args, jobsrig.Options())
				r.Eventually("it has begun", func() bool { return r.Content(box, "log") == "x" })
				if paused {
					r.pauses(box)
				}
				first.Stop(context.Background())
				_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, job, "test")
				r.Must(err)
				if j := r.Job(job); j.State != models.Queued || j.CancelRequestedAt == nil {
					t.Errorf("with nobody to kill it, it is %s, asked at %v", j.State, j.CancelRequestedAt)
				}
				r.Worker(4)
				if paused {
					r.parked(job)
					r.resumes(box)
				}
				if j := r.Wait(job); j.State != models.Cancelled {
					t.Errorf("it is %s %+v", j.State, j.Error)
				}
				r.Eventually("nothing of it runs any more", func() bool { return r.State.Running(box) == 0 }) // a context that heeds no interrupt is killed
				if log := r.Content(box, "log"); log != "x" {
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
	r.Worker(4)
	r.Scheduler()
	box := r.readied()
	r.State.Inject(fake.Fault{Op: fake.OpRun, Err: &providers.Error{Class: providers.RateLimited, Message: "wait", RetryAfter: 2 * time.Second}})
	job := r.Exec(box, "fake:stdout done")
	r.Eventually("it was given back", func() bool { j := r.Job(job); return j.State == models.Queued && j.Attempt == 1 })
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, job, "test")
	r.Must(err)
	if j := r.Wait(job); j.State != models.Cancelled || r.State.Starts(job) > 0 {
		t.Errorf("it is %s and was started %d times", j.State, r.State.Starts(job))
	}
}

// TestProgramsFrozenBehindOurBack go on with the resume that somebody asks for.
func TestProgramsFrozenBehindOurBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(4, reconciling(0))
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"}, jobsrig.Options())
	r.Eventually("it has begun", func() bool { return r.State.Starts(job) == 1 })
	resume := r.Submit(box, &kind.Resume{}, jobsrig.Options()) // behind the command
	r.Must(fake.New(fake.Options{State: r.State}).Pause(t.Context(), box))
	for _, id := range []string{resume, job} {
		if j := r.Wait(id); j.State != models.Succeeded {
			t.Errorf("%s: %s %+v", j.Kind, j.State, j.Error)
		}
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning {
		t.Errorf("the sandbox is %s, wanted %s", b.State, b.Desired)
	}
}

// TestFrozenProgramsGoOnWithAResumeBehindOurBack, which reconciling finds out.
func TestFrozenProgramsGoOnWithAResumeBehindOurBack(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	first := r.Worker(4)
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1s; fake:stdout done"}, jobsrig.Options())
	r.pauses(box)
	first.Stop(context.Background())
	r.Worker(4, reconciling(0))
	r.parked(job)
	r.Must(fake.New(fake.Options{State: r.State}).Resume(t.Context(), box))
	if j := r.Wait(job); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Errorf("it is %s %+v, output %q", j.State, j.Error, j.Stdout)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning {
		t.Errorf("the sandbox is %s", b.State)
	}
}

// TestWaitsForWhatIsFrozenAreHandedOver: they go on waiting, on another worker, too.
func TestWaitsForWhatIsFrozenAreHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.Worker(4)
	r.Scheduler()
	box := r.readied()
	exec := r.Background(box, "fake:sleep 1s; fake:exit 7")
	wait := r.started(box, &kind.ExecWait{ExecRef: jobsrig.Ref(exec)}, jobsrig.Options())
	r.pauses(box)
	first.Stop(context.Background())
	r.Worker(4)
	r.Eventually("the second worker waits", func() bool { j := r.Job(wait); return j.State == models.Running && j.Attempt > 1 })
	r.resumes(box)
	if j := r.Wait(wait); j.State != models.Succeeded || *r.exec1(j).ExitCode != 7 {
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
			r.Worker(4)
			r.Scheduler()
			box := r.readied()
			parallel := jobsrig.Options()
			parallel.Parallel = true
			first := r.Submit(box, &kind.Code{Language: "python", Code: "fake:append log a; fake:sleep 2s; fake:append log b"}, parallel)
			r.Eventually("the first runs", func() bool { return r.Content(box, "log") == "a" })
			parallel.Priority = 100 // comes back first
			second := r.started(box, &kind.Code{Language: "python", Code: "fake:append log c"}, parallel)
			r.pauses(box)
			r.parked(first)
			r.parked(second)
			want := map[string]models.JobState{first: models.Succeeded, second: models.Succeeded}
			if cancelled {
				_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, second, "test")
				r.Must(err)
				want[second] = models.Cancelled
			}
			r.resumes(box)
			for job, state := range want {
				if j := r.Wait(job); j.State != state {
					t.Errorf("%s: %s %+v %s", job, j.State, j.Error, j.Result)
				}
			}
			if log, all := r.Content(box, "log"), map[bool]string{false: "abc", true: "ab"}[cancelled]; log != all {
				t.Errorf("they ran as %q, want %q", log, all)
			}
		})
	}
}

// TestPlainDeleteBehindAResumeThatFails does not wait for what only a resume would thaw.
func TestPlainDeleteBehindAResumeThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proceed, change := r.slowResumer()
	r.Worker(4, change)
	r.Scheduler() // a worker that meets the pause before it is written down looks again later
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1h"}, jobsrig.Options())
	r.pauses(box)
	r.parked(job)
	resume := r.started(box, &kind.Resume{}, jobsrig.Options())
	out, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
	r.Must(err)
	r.State.Inject(fake.Fault{Op: fake.OpResume, Err: &providers.Error{Class: providers.NotSupported, Message: "no"}})
	close(proceed)
	if j := r.Wait(resume); j.State != models.Failed {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
		t.Errorf("delete: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(job); j.State != models.Cancelled {
		t.Errorf("what was frozen: %s %+v", j.State, j.Error)
	}
}

// TestCommandAfterAPauseResumes what has auto_resume, though it found the sandbox still running.
func TestCommandAfterAPauseResumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slow, change := r.slowPauser()
	r.Worker(4, change)
	r.Scheduler()
	box, created := r.Create(jobs.CreateSandbox{AutoResume: true})
	r.Wait(created)
	o := jobsrig.Options()
	o.Parallel = true
	pause := r.Submit(box, &kind.Pause{}, o)
	<-slow.begun
	late := r.started(box, &kind.Exec{Command: "fake:sleep 500ms; fake:stdout done"}, jobsrig.Options())
	close(slow.proceed)
	r.Wait(pause)
	if j := r.Wait(late); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Errorf("it is %s %+v, output %q", j.State, j.Error, j.Stdout)
	}
}

// TestASlowResumeFailsNoJob: a job that has found its sandbox paused waits for the resume, however often it has to look.
func TestASlowResumeFailsNoJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proceed, change := r.slowResumer()
	r.Worker(4, change)
	r.Scheduler()
	box, created := r.Create(jobs.CreateSandbox{AutoResume: true})
	r.Wait(created)
	r.pauses(box)
	job := r.Exec(box, "fake:stdout done")
	const many = 50
	r.Eventually("it is as if it had looked often", func() bool {
		r.SQL("UPDATE jobs SET attempt = $2 WHERE id = $1 AND state = 'queued' AND attempt BETWEEN 1 AND $2", job, many)
		return r.Job(job).Attempt >= many
	})
	r.Eventually("it has looked on", func() bool { j := r.Job(job); return j.Attempt > many && j.State != models.Running })
	if j := r.Job(job); j.State != models.Queued {
		t.Errorf("after %d looks it is %s %+v", j.Attempt, j.State, j.Error)
	}
	close(proceed)
	if j := r.Wait(job); j.State != models.Succeeded || string(j.Stdout) != "done" {
		t.Errorf("it is %s %+v, output %q", j.State, j.Error, j.Stdout)
	}
}

// TestFrozenCommandOfALostSandbox: nobody can say how it ended.
func TestFrozenCommandOfALostSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler() // a worker that meets the pause before it is written down looks again later
	box := r.readied()
	job := r.started(box, &kind.Exec{Command: "fake:sleep 1h"}, jobsrig.Options())
	r.pauses(box)
	r.parked(job)
	r.State.Crash(box)
	if j := r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options())); j.State != models.Failed {
		t.Fatalf("resume: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(job); j.State != models.Lost || j.Error.Code != "sandbox_lost" {
		t.Errorf("it is %s %+v", j.State, j.Error)
	}
}
