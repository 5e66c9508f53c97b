package models_test

import (
	"database/sql"
	"errors"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// running makes a sandbox that runs.
func running(t *testing.T, s *models.Store) *models.Sandbox {
	t.Helper()
	box := newSandbox()
	finish(t, s, create(t, s, box).Dispatch[0], models.SandboxRunning)
	return box
}

// submitOn submits one job, changed, on a sandbox.
func submitOn(t *testing.T, s *models.Store, sandbox, kind string, change ...func(*models.Submission)) models.Submitted {
	t.Helper()
	sub := models.Submission{TenantID: "default", SandboxID: sandbox, Jobs: []models.Job{newJob(kind, sandbox)}}
	for _, f := range change {
		f(&sub)
	}
	out, err := s.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestADeleteStandsInNoWindow: whatever else its tenant has in Redis and in the backlog.
func TestADeleteStandsInNoWindow(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	a, b, c := running(t, s), running(t, s), running(t, s)
	if out := submitOn(t, s, a.ID, "exec"); len(out.Dispatch) != 1 {
		t.Fatalf("the first exec is not handed over: %+v", out.Dispatch)
	}
	if out := submitOn(t, s, b.ID, "exec"); len(out.Dispatch) != 0 {
		t.Fatalf("the window has no room for a second exec, but %+v is handed over", out.Dispatch)
	}
	out := submitOn(t, s, c.ID, models.KindDelete, func(sub *models.Submission) {
		sub.Jobs[0].Parallel, sub.End = true, &models.End{Reason: "timeout", Actor: "test"}
	})
	if len(out.Dispatch) != 1 || out.Dispatch[0].JobID != out.Jobs[0].ID {
		t.Fatalf("handed over with a forced delete: %+v, want the delete", out.Dispatch)
	}
}

// TestTheWindowHoldsNoJobsThatRun: otherwise its size is how many jobs a tenant may run on a whole fleet.
func TestTheWindowHoldsNoJobsThatRun(t *testing.T) {
	t.Parallel()
	s := open(t, 2)
	for i := range 5 {
		out := submitOn(t, s, running(t, s).ID, "exec")
		if len(out.Dispatch) != 1 {
			t.Fatalf("exec %d is not handed over while all others run: %+v", i, out.Dispatch)
		}
		if _, err := s.Claim(t.Context(), out.Jobs[0].ID, "node", lease); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLanesOfGoAndSQLAgree: the dispatch picks lanes in SQL, and the worker by models.LaneOf.
func TestLanesOfGoAndSQLAgree(t *testing.T) {
	t.Parallel()
	db := database(t, migrated(t))
	for lane, kinds := range models.Lanes() {
		for _, kind := range append(kinds, "any") {
			var got models.Lane
			if err := db.QueryRowContext(t.Context(), "SELECT job_lane($1)", kind).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if want := models.LaneOf(kind); got != want {
				t.Errorf("SQL has %s in lane %q, Go in %q", kind, got, want)
			}
		}
		if len(kinds) > 0 && models.LaneOf(kinds[0]) != lane {
			t.Errorf("%s is in lane %q, want %q", kinds[0], models.LaneOf(kinds[0]), lane)
		}
	}
}

func migrated(t *testing.T) string {
	t.Helper()
	dsn := testdb.Fresh(t)
	openAt(t, dsn, 100)
	return dsn
}

// TestABacklogCostsADispatchNothing: neither with a full window nor with room for one job is a backlog read.
func TestABacklogCostsADispatchNothing(t *testing.T) {
	t.Parallel()
	const backlog, buffers = 20_000, 300
	for name, c := range map[string]struct{ window, want int }{
		"full":        {window: 100, want: 0},
		"room of one": {window: 101, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Fresh(t)
			// What fills the tables has gone before the first count: PostgreSQL counts late what a connection has read.
			s := openAt(t, dsn+"&application_name=looking", c.window)
			box := running(t, s)
			fill, err := sql.Open("pgx", dsn+"&application_name=looking")
			if err != nil {
				t.Fatal(err)
			}
			const job = `INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, parallel, actor, args, timeout_ms, max_attempts, ready_at, dispatched_at, queue)
				SELECT $1 || i, 'default', $2, 'exec', 'queued', i, true, 'test', '{}', 1000, 1, now() - interval '1 hour', `
			exec(t, fill, job+"now(), 'fake' FROM generate_series(1, $3) i", "sent", box.ID, 100)
			exec(t, fill, job+"NULL, NULL FROM generate_series(1, $3) i", "ready", box.ID, backlog)
			for _, table := range []string{"jobs", "sandboxes"} {
				exec(t, fill, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)") // it would be counted, too
				exec(t, fill, "VACUUM ANALYZE "+table)
			}
			if err := errors.Join(fill.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			db := database(t, dsn)
			before := buffersRead(t, db)
			looking, err := models.Open(t.Context(), dsn+"&application_name=looking", 1, models.Limits{Window: c.window})
			if err != nil {
				t.Fatal(err)
			}
			out, err := looking.DispatchReady(t.Context(), "default")
			if err := errors.Join(err, looking.Close()); err != nil || len(out) != c.want {
				t.Fatalf("%d jobs are handed over, want %d: %v", len(out), c.want, err)
			}
			if n := buffersRead(t, db) - before; n > buffers {
				t.Errorf("the dispatch reads %d buffers, at most %d are wanted", n, buffers)
			}
		})
	}
}

// buffersRead is how many pages of jobs, sandboxes and their indexes were ever looked at, by those who have gone by now.
func buffersRead(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	awaitStatistics(t, db)
	err := db.QueryRowContext(t.Context(), `SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))
		FROM pg_statio_user_tables WHERE relname IN ('jobs', 'sandboxes')`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
