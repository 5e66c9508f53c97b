package models_test

import (
	"os"
	"strings"
	"testing"

	"sandyard/dev/testdb"
)

// TestRowsOfRenamedKinds: rows that an older version has written are found under the new names of their kinds.
func TestRowsOfRenamedKinds(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	box := running(t, s)
	db := database(t, dsn)
	exec(t, db, `INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, parallel, actor, args, timeout_ms, max_attempts)
		VALUES ('job_old', 'default', $1, 'write-many', 'queued', 7, true, 'test', '{}', 1000, 1)`, box.ID)
	exec(t, db, `INSERT INTO schedules (id, tenant_id, state, time_zone, anchor, overlap, missed, max_catch_up, kind, sandbox_id,
		action, options, created_by, changed_by) VALUES ('sched_old', 'default', 'active', 'UTC', now(), 'skip', 'skip', 1,
		'read-many', $1, '{"job":{"kind":"read-many","args":{"paths":["\"kind\":\"read-many\""]}}}', '{}', 'test', 'test')`, box.ID)

	text, err := os.ReadFile("migrations/00085_snake_case_kinds.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(text), "-- +goose Down")
	exec(t, db, up)

	job, err := s.Job(t.Context(), "default", "job_old")
	if err != nil || job.Kind != "write_many" {
		t.Errorf("the job has kind %q: %v", job.Kind, err)
	}
	sched, err := s.Schedule(t.Context(), "default", "sched_old")
	if want := `{"job":{"kind":"read_many","args":{"paths":["\"kind\":\"read-many\""]}}}`; err != nil ||
		sched.Kind != "read_many" || string(sched.Action) != want {
		t.Errorf("the schedule has kind %q and action %s: %v", sched.Kind, sched.Action, err)
	}
}
