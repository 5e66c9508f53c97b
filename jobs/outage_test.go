package jobs_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// wired is a store on a connection to PostgreSQL of its own, which can be broken.
func (r *rig) wired() (*faultproxy.Proxy, *models.Store) {
	r.T.Helper()
	proxy, with := r.Wire()
	c := worker.Config{}
	with(&c)
	return proxy, c.Store
}

// asker asks and tells the database past everything that can be broken.
func (r *rig) asker() (holds func(query string, args ...any) bool, settle func()) {
	r.T.Helper()
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	r.T.Cleanup(func() { _ = conn.Close(context.WithoutCancel(r.T.Context())) })
	holds = func(query string, args ...any) (is bool) {
		r.T.Helper()
		r.Must(conn.QueryRow(r.T.Context(), query, args...).Scan(&is))
		return is
	}
	settle = func() { // as if the schedulers' lease had been renewed for an hour
		_, err := conn.Exec(r.T.Context(), "UPDATE leases SET steady_since = now() - interval '1 hour' WHERE name = 'scheduler'")
		r.Must(err)
	}
	return holds, settle
}

// ghost moves a sandbox to an engine whose last worker died an hour ago.
func (r *rig) ghost(box string) {
	r.T.Helper()
	r.SQL(`INSERT INTO nodes (id, provider, engine, slots, beat_at, lease_until) VALUES ('ghost', 'fake', 'gone', 1, now() - interval '1 hour', now() - interval '1 hour')
		ON CONFLICT DO NOTHING`)
	r.SQL("UPDATE sandboxes SET node_id = 'ghost' WHERE id = $1", box)
}

// TestAnOutageOfTheDatabaseLosesNothing: PostgreSQL is away for longer than sandboxes wait for a worker, and than an open stream
// may be silent. The scheduler has it back first. Nobody is dead or idle for that; who really is, is so later.
func TestAnOutageOfTheDatabaseLosesNothing(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	holds, settle := r.asker()
	ofScheduler, itsStore := r.wired()
	ofWorker, workers := r.Wire()
	ofEdge, edges := r.wired()
	var renewals atomic.Int64
	ofScheduler.On(func(c faultproxy.Call) faultproxy.Fault {
		if strings.Contains(c.Text, "INTO leases") {
			renewals.Add(1)
		}
		return faultproxy.None
	})
	r.Worker(4, workers, func(c *worker.Config) { c.Lease = 2 * time.Second })
	made := func(wish jobs.CreateSandbox) string {
		box, created := r.Create(wish)
		r.Wait(created)
		return box
	}
	box, other, third := made(jobs.CreateSandbox{}), made(jobs.CreateSandbox{}), made(jobs.CreateSandbox{})
	open, idle := made(jobs.CreateSandbox{}), made(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:append log x; fake:sleep 10s")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	r.Scheduler(lostAfter(4*time.Second), func(c *scheduler.Config) { c.Steady, c.Store = time.Hour/2, itsStore })
	r.Eventually("a scheduler leads", func() bool { return holds("SELECT EXISTS (SELECT 1 FROM leases WHERE name = 'scheduler')") })

	r.ghost(other)
	r.Eventually("a sandbox whose engine has no worker is lost", func() bool { settle(); return r.Sandbox(other).State == models.SandboxLost })

	for _, p := range []*faultproxy.Proxy{ofScheduler, ofWorker, ofEdge} {
		p.Away()
	}
	r.SQL("UPDATE sandboxes SET idle_timeout_ms = 1000 WHERE id = ANY ($1)", []string{open, idle})
	r.Eventually("the outage is longer than all that anybody waits for", func() bool {
		return holds(`SELECT bool_and(lease_until < now() - interval '5 s') AND (SELECT beat_at < now() - interval '4 s' FROM leases WHERE name = 'scheduler')
			AND (SELECT bool_and(last_active_at < now() - interval '2 s') FROM sandboxes WHERE idle_timeout_ms = 1000) FROM nodes`)
	})
	ofScheduler.Back()
	before := renewals.Load()
	r.Eventually("the scheduler is back for some ticks of all loops", func() bool { return renewals.Load() > before+6 })
	for what, id := range map[string]string{"with a job": box, "with an open stream": open, "idle": idle} {
		if b := r.Sandbox(id); b.State != models.SandboxRunning || b.Desired != models.DesiredRunning {
			t.Errorf("the sandbox %s is %s", what, b.State)
		}
	}
	if j := r.Job(exec); j.State != models.Running || j.Attempt != 1 {
		t.Errorf("the job is %s at attempt %d", j.State, j.Attempt)
	}

	ofWorker.Back()
	ofEdge.Back()
	touched := make(chan struct{})
	go func() {
		defer close(touched)
		for tick := time.NewTicker(50 * time.Millisecond); t.Context().Err() == nil; <-tick.C {
			_, _ = edges.Touch(t.Context(), []string{open})
		}
	}()
	t.Cleanup(func() { <-touched })
	r.Eventually("the worker is back", func() bool { return holds("SELECT bool_or(lease_until > now()) FROM nodes") })
	r.SQL("UPDATE sandboxes SET idle_timeout_ms = 30000, last_active_at = last_active_at - interval '30 s' WHERE id = ANY ($1)", []string{open, idle})
	r.ghost(third)
	r.Eventually("the stream is written down", func() bool {
		return holds("SELECT last_active_at > now() - interval '5 s' FROM sandboxes WHERE id = $1", open)
	})
	r.Eventually("who is idle is deleted, and who is lost is lost", func() bool {
		settle()
		return r.Sandbox(idle).State == models.SandboxDeleted && r.Sandbox(third).State == models.SandboxLost
	})
	if b := r.Sandbox(open); b.State != models.SandboxRunning {
		t.Errorf("the sandbox with an open stream is %s", b.State)
	}
	if j := r.Wait(exec); j.State != models.Succeeded || r.State.Starts(exec) != 1 {
		t.Errorf("the job ended %s after %d starts: %+v", j.State, r.State.Starts(exec), j.Error)
	}
}

// TestWorkersAfterAnOutageKeepTheirSandboxes: each has been away for longer than its lease, and no beat of the one comes with
// the other's.
func TestWorkersAfterAnOutageKeepTheirSandboxes(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	holds, _ := r.asker()
	lease := func(c *worker.Config) { c.Lease = 15 * time.Second }
	nodes := []string{r.Worker(2, lease).Node(), r.Worker(2, lease).Node()}
	var boxes []string
	for _, n := range nodes {
		box, created := r.Create(jobs.CreateSandbox{})
		r.Wait(created)
		r.SQL("UPDATE sandboxes SET node_id = $1 WHERE id = $2", n, box)
		boxes = append(boxes, box)
	}
	r.SQL(`UPDATE nodes SET beat_at = beat_at - interval '1 hour', lease_until = lease_until - interval '1 hour', steady_since = steady_since - interval '2 hours'`)
	r.Eventually("both are heard of again", func() bool { return holds("SELECT bool_and(lease_until > now()) FROM nodes") })
	for i, box := range boxes {
		if now := *r.Sandbox(box).NodeID; now != nodes[i] {
			t.Errorf("sandbox %d of %v went to %s", i, nodes, now)
		}
	}
}
