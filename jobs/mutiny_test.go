package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// another starts a scheduler as another process would be: its submissions share no transactions with those of the others.
func (r *rig) another(change ...func(*scheduler.Config)) {
	r.t.Helper()
	store, err := models.Open(r.t.Context(), r.dsn, 8, models.Limits{Window: 64})
	r.must(err)
	r.t.Cleanup(func() { r.must(store.Close()) })
	client := jobs.NewClient(store, r.queue, jobs.Catalog{}, r.log)
	r.scheduler(append(change, func(c *scheduler.Config) { c.Store, c.Client = store, client })...)
}

// holdUp locks all sandboxes, does what f does, and lets go when that many transactions wait for them.
func (r *rig) holdUp(many int, f func()) {
	r.t.Helper()
	ctx := r.t.Context()
	conn, err := pgx.Connect(ctx, r.dsn)
	r.must(err)
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "BEGIN; SELECT 1 FROM sandboxes ORDER BY id FOR UPDATE")
	r.must(err)
	f()
	look, err := pgx.Connect(ctx, r.dsn) // a transaction is told the same all the time
	r.must(err)
	defer look.Close(context.WithoutCancel(ctx))
	r.eventually("others wait", func() bool {
		var n int
		r.must(look.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
		return n >= many
	})
	_, err = conn.Exec(ctx, "COMMIT")
	r.must(err)
}

// told says how often something is told of a sandbox, and how many jobs of a kind the scheduler has submitted to it.
func (r *rig) told(box, event, kind string) (told, submitted int) {
	r.t.Helper()
	events, err := r.store.Events(r.t.Context(), tenant, models.EventFilter{Sandbox: box, Limit: 1000})
	r.must(err)
	for _, e := range events {
		if e.Event == event {
			told++
		}
		if e.Event == "job.queued" && e.Actor == "scheduler" && r.job(*e.JobID).Kind == kind {
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
	r.worker(8)
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
			box, created := r.create(wish)
			boxes[box], ready = s, append(ready, created)
			if s.clock == "paused_at" {
				ready = append(ready, r.submit(box, &kind.Pause{}, options()))
			}
		}
	}
	for _, id := range ready {
		r.wait(id)
	}
	for box, s := range boxes {
		r.sql("UPDATE sandboxes SET "+s.clock+" = now() - interval '1 day' WHERE id = $1", box)
	}
	r.mutiny()
	r.holdUp(2, func() {
		r.another()
		r.another()
	})
	for box, s := range boxes {
		r.eventually(s.clock+" has come", func() bool { n, _ := r.told(box, s.event, s.kind); return n > 0 })
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
	doomed := r.worker(8, func(c *worker.Config) { c.Engine, c.Grace = "another", 0 })
	const many = 5
	boxes := map[string]string{} // with what runs in them
	for range many {
		box, created := r.create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
		r.wait(created)
		boxes[box] = r.exec(box, "fake:sleep 1h")
	}
	for _, exec := range boxes {
		r.eventually("the commands run", func() bool { return r.state.Starts(exec) == 1 })
	}
	doomed.Stop(t.Context())
	r.worker(8)
	r.mutiny()
	r.holdUp(2, func() {
		r.another(lostAfter(time.Millisecond))
		r.another(lostAfter(time.Millisecond))
	})
	for box, exec := range boxes {
		r.eventually("another has taken the place", func() bool {
			by := r.sandbox(box).ReplacedBy
			return by != nil && r.sandbox(*by).State == models.SandboxRunning
		})
		if j := r.wait(exec); j.State != models.Lost {
			t.Errorf("what ran in it ended %s: %+v", j.State, j.Error)
		}
		if n, _ := r.told(box, "sandbox.lost", ""); n != 1 {
			t.Errorf("its loss is told %d times", n)
		}
	}
	n, err := r.store.CountSandboxes(t.Context(), tenant, models.SandboxFilter{})
	r.must(err)
	if n != 2*many {
		t.Errorf("there are %d sandboxes in place of %d", n-many, many)
	}
}
