package models_test

import (
	"context"
	"database/sql"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// backlog adds queued jobs to a sandbox.
func backlog(t *testing.T, db *sql.DB, box string, n int) {
	t.Helper()
	exec(t, db, `INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, parallel, actor, args, timeout_ms, max_attempts, ready_at)
		SELECT 'backlog' || i, 'default', $1, 'exec', 'queued', i, true, 'test', '{}', 1000, 5, now() FROM generate_series(1, $2::int) i`, box, n)
	exec(t, db, "UPDATE sandboxes SET next_seq = $1 WHERE id = $2", n, box)
	exec(t, db, "VACUUM ANALYZE jobs")
}

// TestAnOrderedJobPassesABacklogOfParallelOnes: whether an ordered job is open, and which is the oldest, is asked with each submission and
// each end, under the sandbox's lock.
func TestAnOrderedJobPassesABacklogOfParallelOnes(t *testing.T) {
	t.Parallel()
	dsn := testdb.Fresh(t)
	s := openAt(t, dsn, 100)
	db := database(t, dsn)
	exec(t, db, "UPDATE tenants SET max_queued = 1000000")
	made := create(t, s, newSandbox())
	finish(t, s, made.Dispatch[0], models.SandboxRunning)
	backlog(t, db, made.Sandbox.ID, 20_000)

	looking, err := models.Open(t.Context(), dsn+"&application_name=looking", 1, models.Limits{Window: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	read := func() (n int) {
		t.Helper()
		for n = -1; n != 0; { // a session that has ended has told what it did
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'looking'").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		err := db.QueryRowContext(t.Context(), "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE indexrelname IN ('jobs_order', 'jobs_chain')").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	sub := jobOn(made.Sandbox)
	sub.TenantID, sub.Jobs[0].TenantID = "default", "default"
	if _, err := looking.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	job, err := looking.Claim(t.Context(), sub.Jobs[0].ID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := looking.Finish(t.Context(), outcome(job, models.Succeeded, "")); err != nil {
		t.Fatal(err)
	}
	_ = looking.Close()
	if n := read(); n == 0 || n > 200 {
		t.Errorf("a submission and an end read %d entries of the sandbox's open jobs, of which 20,000 are beside the order", n)
	}
}

// TestTheEndOfALongQueue ends more jobs than one transaction can, while others submit.
func TestTheEndOfALongQueue(t *testing.T) {
	testenv.Long(t, "it needs many rows")
	t.Parallel()
	dsn := testdb.Fresh(t)
	s := openAt(t, dsn, 1)
	db := database(t, dsn)
	exec(t, db, "UPDATE tenants SET max_queued = 1000000")
	made, other := create(t, s, newSandbox()), otherTenant(t, dsn, s, "other")
	finish(t, s, made.Dispatch[0], models.SandboxRunning)
	backlog(t, db, made.Sandbox.ID, 66_000)
	del := newJob(models.KindDelete, made.Sandbox.ID)
	del.Parallel = true
	ending := submitting(s, models.Submission{
		TenantID: "default", SandboxID: made.Sandbox.ID, Jobs: []models.Job{del}, End: &models.End{Reason: "forced", Actor: "test"},
	})
	for range 10 {
		mustEnd(t, "a job of another tenant", submitting(s, jobOn(other)))
	}
	if err := <-ending; err != nil {
		t.Fatalf("the end of 66,000 jobs: %v", err)
	}
	var left int
	err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM jobs WHERE state = 'queued' AND id LIKE 'backlog%'").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d jobs still wait, %v", left, err)
	}
}
