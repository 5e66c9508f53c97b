package jobs_test

import (
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
)

func lostAfter(d time.Duration) func(*scheduler.Config) {
	return func(c *scheduler.Config) { c.LostAfter = d }
}

// TestSandboxesOfADeadEngineAreLost: with the last worker of an engine its sandboxes go, and their jobs end; when a worker
// comes back there, it removes what was given up.
func TestSandboxesOfADeadEngineAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler(lostAfter(time.Second))
	only := r.Worker(4, func(c *worker.Config) { c.Grace = 0 })
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	exec := r.Exec(box, "fake:sleep 1h")
	behind := r.Exec(box, "fake:stdout never")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	gone, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
	r.Must(err)
	only.Stop(t.Context())
	r.Eventually("the sandbox is lost", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	for id, want := range map[string]models.JobState{exec: models.Lost, behind: models.Failed, gone.Jobs[0].ID: models.Lost} {
		if j := r.Wait(id); j.State != want || j.Error.Code != "sandbox_lost" {
			t.Errorf("the %s ended %s %+v, want %s", j.Kind, j.State, j.Error, want)
		}
		if e := r.lastEvent(id); e.Event != "job."+string(want) || e.Actor != "platform" {
			t.Errorf("of its end is told %s by %s: no worker did that", e.Event, e.Actor)
		}
	}
	if reason, _ := r.happened(box, "sandbox.lost"); reason != "its engine had no worker for longer than LOST_AFTER" {
		t.Errorf("the event says %q", reason)
	}
	if !r.has(r.State, box) {
		t.Fatal("the container of the dead node is gone already, the test shows nothing")
	}
	r.Worker(4, reconciling(100*time.Millisecond))
	r.noResources()
}

// lastEvent is what was told last of a job.
func (r *rig) lastEvent(job string) models.Event {
	r.T.Helper()
	list, err := r.Store.Events(r.T.Context(), jobsrig.Tenant, models.EventFilter{Job: job, Limit: 1})
	r.Must(err)
	if len(list) == 0 {
		r.T.Fatalf("nothing is told of job %s", job)
	}
	return list[0]
}

// TestJobsOfAnEndedSandboxAreEnded: the scheduler finds those that no worker is left for.
func TestJobsOfAnEndedSandboxAreEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, created := r.Create(jobs.CreateSandbox{})
	r.SQL("UPDATE jobs SET queued_at = now() - interval '1 hour'")
	r.SQL("UPDATE sandboxes SET state = 'lost', node_id = 'forgotten', ended_at = now() - interval '1 hour' WHERE id = $1", box)
	r.Scheduler()
	if j := r.Wait(created); j.State != models.Failed || j.Error.Code != "sandbox_lost" {
		t.Errorf("the job ended %s: %+v", j.State, j.Error)
	}
}

func TestACreateOnADeadEngineGoesToAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	dying := r.Worker(2, func(c *worker.Config) { c.Grace = 0 })
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true}) // made, but nobody is told
	box, created := r.Create(jobs.CreateSandbox{})
	r.Eventually("the create runs", func() bool { return r.State.Calls(fake.OpCreate) > 0 })
	dying.Stop(t.Context())
	other := fake.NewState()
	r.WorkerOn(other, 2, func(c *worker.Config) { c.Engine = "another" })
	if j := r.Wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if !r.has(other, box) || !r.has(r.State, box) {
		t.Fatal("the sandbox is not on both engines, the test shows nothing")
	}
	r.Worker(2, reconciling(100*time.Millisecond)) // the dead engine's worker comes back
	r.Eventually("what the first create has left is removed", func() bool { return !r.has(r.State, box) })
	if j := r.Wait(r.Exec(box, "fake:stdout here")); string(j.Stdout) != "here" {
		t.Errorf("exec: %s %+v", j.State, j.Error)
	}
}

func TestAReturningWorkerFindsItsSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler(lostAfter(time.Hour))
	first := r.Worker(2, func(c *worker.Config) { c.Grace = 0 })
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	exec := r.Exec(box, "fake:stdout a; fake:sleep 1s; fake:stdout b")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	first.Stop(t.Context())
	r.Worker(2, reconciling(0))
	if j := r.Wait(exec); string(j.Stdout) != "ab" || r.State.Starts(exec) != 1 {
		t.Errorf("exec: %s, stdout %q, started %d times, %+v", j.State, j.Stdout, r.State.Starts(exec), j.Error)
	}
	if _, ok := r.happened(box, "sandbox.adopted"); !ok {
		t.Error("no event tells of the adoption")
	}
}
