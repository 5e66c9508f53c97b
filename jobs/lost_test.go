package jobs_test

import (
	"testing"
	"time"

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
	r.scheduler(lostAfter(time.Second))
	only := r.worker(4, func(c *worker.Config) { c.Grace = 0 })
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	exec := r.exec(box, "fake:sleep 1h")
	behind := r.exec(box, "fake:stdout never")
	r.eventually("the command runs", func() bool { return r.state.Starts(exec) == 1 })
	gone, err := r.client.Delete(t.Context(), box, false, options())
	r.must(err)
	only.Stop(t.Context())
	r.eventually("the sandbox is lost", func() bool { return r.sandbox(box).State == models.SandboxLost })
	for id, want := range map[string]models.JobState{exec: models.Lost, behind: models.Failed, gone.Jobs[0].ID: models.Lost} {
		if j := r.wait(id); j.State != want || j.Error.Code != "sandbox_lost" {
			t.Errorf("the %s ended %s %+v, want %s", j.Kind, j.State, j.Error, want)
		}
		if e := r.lastEvent(id); e.Event != "job."+string(want) || e.Actor != "platform" {
			t.Errorf("of its end is told %s by %s: no worker did that", e.Event, e.Actor)
		}
	}
	if reason, _ := r.happened(box, "sandbox.lost"); reason != "its engine had no worker for longer than LOST_AFTER" {
		t.Errorf("the event says %q", reason)
	}
	if !r.has(r.state, box) {
		t.Fatal("the container of the dead node is gone already, the test shows nothing")
	}
	r.worker(4, reconciling(100*time.Millisecond))
	r.noResources()
}

// lastEvent is what was told last of a job.
func (r *rig) lastEvent(job string) models.Event {
	r.t.Helper()
	list, err := r.store.Events(r.t.Context(), tenant, models.EventFilter{Job: job, Limit: 1})
	r.must(err)
	if len(list) == 0 {
		r.t.Fatalf("nothing is told of job %s", job)
	}
	return list[0]
}

// TestJobsOfAnEndedSandboxAreEnded: the scheduler finds those that no worker is left for.
func TestJobsOfAnEndedSandboxAreEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, created := r.create(jobs.CreateSandbox{})
	r.sql("UPDATE jobs SET queued_at = now() - interval '1 hour'")
	r.sql("UPDATE sandboxes SET state = 'lost', node_id = 'forgotten', ended_at = now() - interval '1 hour' WHERE id = $1", box)
	r.scheduler()
	if j := r.wait(created); j.State != models.Failed || j.Error.Code != "sandbox_lost" {
		t.Errorf("the job ended %s: %+v", j.State, j.Error)
	}
}

func TestACreateOnADeadEngineGoesToAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	dying := r.worker(2, func(c *worker.Config) { c.Grace = 0 })
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true}) // made, but nobody is told
	box, created := r.create(jobs.CreateSandbox{})
	r.eventually("the create runs", func() bool { return r.state.Calls(fake.OpCreate) > 0 })
	dying.Stop(t.Context())
	other := fake.NewState()
	r.workerOn(other, 2, func(c *worker.Config) { c.Engine = "another" })
	if j := r.wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
	if !r.has(other, box) || !r.has(r.state, box) {
		t.Fatal("the sandbox is not on both engines, the test shows nothing")
	}
	r.worker(2, reconciling(100*time.Millisecond)) // the dead engine's worker comes back
	r.eventually("what the first create has left is removed", func() bool { return !r.has(r.state, box) })
	if j := r.wait(r.exec(box, "fake:stdout here")); string(j.Stdout) != "here" {
		t.Errorf("exec: %s %+v", j.State, j.Error)
	}
}

func TestAReturningWorkerFindsItsSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler(lostAfter(time.Hour))
	first := r.worker(2, func(c *worker.Config) { c.Grace = 0 })
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	exec := r.exec(box, "fake:stdout a; fake:sleep 1s; fake:stdout b")
	r.eventually("the command runs", func() bool { return r.state.Starts(exec) == 1 })
	first.Stop(t.Context())
	r.worker(2, reconciling(0))
	if j := r.wait(exec); string(j.Stdout) != "ab" || r.state.Starts(exec) != 1 {
		t.Errorf("exec: %s, stdout %q, started %d times, %+v", j.State, j.Stdout, r.state.Starts(exec), j.Error)
	}
	if _, ok := r.happened(box, "sandbox.adopted"); !ok {
		t.Error("no event tells of the adoption")
	}
}
