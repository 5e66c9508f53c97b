package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// another starts a scheduler as another process would be: its submissions share no transactions with those of the others.
func (r *rig) another(change ...func(*scheduler.Config)) {
	r.T.Helper()
	store, err := models.Open(r.T.Context(), r.DSN, 8, models.Limits{Window: 64})
	r.Must(err)
	r.T.Cleanup(func() { r.Must(store.Close()) })
	client := jobs.NewClient(store, r.Queue, jobs.Catalog{}, r.Log)
	r.Scheduler(append(change, func(c *scheduler.Config) { c.Store, c.Client = store, client })...)
}

// holdUp locks all sandboxes, does what f does, and lets go when that many transactions wait for them.
func (r *rig) holdUp(many int, f func()) {
	r.T.Helper()
	ctx := r.T.Context()
	conn, err := pgx.Connect(ctx, r.DSN)
	r.Must(err)
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "BEGIN; SELECT 1 FROM sandboxes ORDER BY id FOR UPDATE")
	r.Must(err)
	f()
	look, err := pgx.Connect(ctx, r.DSN) // a transaction is told the same all the time
	r.Must(err)
	defer look.Close(context.WithoutCancel(ctx))
	r.Eventually("others wait", func() bool {
		var n int
		r.Must(look.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
		return n >= many
	})
	_, err = conn.Exec(ctx, "COMMIT")
	r.Must(err)
}

// told says how often something is told of a sandbox, and how many jobs of a kind the scheduler has submitted to it.
func (r *rig) told(box, event, kind string) (told, submitted int) {
	r.T.Helper()
	events, err := r.Store.Events(r.T.Context(), jobsrig.Tenant, models.EventFilter{Sandbox: box, Limit: 1000})
	r.Must(err)
	for _, e := range events {
		if e.Event == event {
			told++
		}
		if e.Event == "job.queued" && e.Actor == "scheduler" && r.Job(*e.JobID).Kind == kind {
			submitted++
		}
	}
	return told, submitted
}

// TestTwoLeadersFireOnce: two schedulers lead at once and both find what is due before either can do anything about it.
// Each sandbox is ended or paused once.
func TestTwoLeadersFireOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	type sort struct{ event, kind, clock string }
	boxes, ready := map[string]sort{}, []string{}
	for s, wish := range map[sort]jobs.CreateSandbox{
		{"sandbox.deleted", models.KindDelete, "expires_at"}:     {},
		{"sandbox.paused", models.KindPause, "expires_at"}:       {OnTimeout: "pause"},
		{"sandbox.deleted", models.KindDelete, "last_active_at"}: {},
		{"sandbox.deleted", models.KindDelete, "started_at"}:     {MaxLifetimeSeconds: 3600},
		{"sandbox.deleted", models.KindDelete, "paused_at"}:      {PausedTimeoutSeconds: 3600},
	} {
		for range 3 {
			box, created := r.Create(wish)
			boxes[box], ready = s, append(ready, created)
			if s.clock == "paused_at" {
				ready = append(ready, r.Submit(box, &kind.Pause{}, jobsrig.Options()))
			}
		}
	}
	for _, id := range ready {
		r.Wait(id)
	}
	for box, s := range boxes {
		r.SQL("UPDATE sandboxes SET "+s.clock+" = now() - interval '1 day' WHERE id = $1", box)
	}
	r.mutiny()
	r.holdUp(2, func() {
		r.another()
		r.another()
	})
	for box, s := range boxes {
		r.Eventually(s.clock+" has come", func() bool { n, _ := r.told(box, s.event, s.kind); return n > 0 })
	}
	for box, s := range boxes {
		if n, submitted := r.told(box, s.event, s.kind); n != 1 || submitted != 1 {
			t.Errorf("%s: %s is told %d times, after %d jobs", s.clock, s.event, n, submitted)
		}
	}
}

// TestTwoLeadersLoseAndReplaceOnce: what an engine took with it is lost once, and one sandbox takes the place of each.
func TestTwoLeadersLoseAndReplaceOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	doomed := r.Worker(8, func(c *worker.Config) { c.Engine, c.Grace = "another", 0 })
	const many = 5
	boxes := map[string]string{} // with what runs in them
	for range many {
		box, created := r.Create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
		r.Wait(created)
		boxes[box] = r.Exec(box, "fake:sleep 1h")
	}
	for _, exec := range boxes {
		r.Eventually("the commands run", func() bool { return r.State.Starts(exec) == 1 })
	}
	doomed.Stop(t.Context())
	r.Worker(8)
	r.mutiny()
	r.holdUp(2, func() {
		r.another(lostAfter(time.Millisecond))
		r.another(lostAfter(time.Millisecond))
	})
	for box, exec := range boxes {
		r.Eventually("another has taken the place", func() bool {
			by := r.Sandbox(box).ReplacedBy
			return by != nil && r.Sandbox(*by).State == models.SandboxRunning
		})
		if j := r.Wait(exec); j.State != models.Lost {
			t.Errorf("what ran in it ended %s: %+v", j.State, j.Error)
		}
		if n, _ := r.told(box, "sandbox.lost", ""); n != 1 {
			t.Errorf("its loss is told %d times", n)
		}
	}
	n, err := r.Store.CountSandboxes(t.Context(), jobsrig.Tenant, models.SandboxFilter{})
	r.Must(err)
	if n != 2*many {
		t.Errorf("there are %d sandboxes in place of %d", n-many, many)
	}
}
