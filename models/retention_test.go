package models_test

import (
	"testing"
	"time"

	"sandyard/models"
)

// TestBuildsAreForgotten but those whose image is still needed, or whose job is still known.
func TestBuildsAreForgotten(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	out := create(t, s, box)
	exec(t, db, "UPDATE sandboxes SET image = 'lives' WHERE id = $1", box.ID)
	for id, job := range map[string]string{"plain": "gone", "lives": "gone", "fresh": "gone", "known": out.Jobs[0].ID, "template": "gone"} {
		exec(t, db, `INSERT INTO builds (id, tenant_id, shared, template, sandbox_id, job_id, recipe, image, created_at)
			VALUES ($1, 'default', false, 't', 'x', $2, '{}', $1, now() - interval '2 hours')`, id, job)
		exec(t, db, "INSERT INTO build_logs (build_id, data) VALUES ($1, 'x')", id)
	}
	exec(t, db, "UPDATE builds SET created_at = now() WHERE id = 'fresh'")
	if _, err := s.PutTemplate(t.Context(), models.Owner{Tenant: "default"}, models.Template{Name: "t", Image: "template"}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PruneBuilds(t.Context(), time.Hour, 100); err != nil || n != 1 {
		t.Errorf("%d builds are forgotten, %v", n, err)
	}
	var left, logs int
	err := db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM builds WHERE id <> 'plain'), (SELECT count(*) FROM build_logs)").Scan(&left, &logs)
	if err != nil || left != 4 || logs != 4 {
		t.Errorf("%d builds are left with %d logs, %v", left, logs, err)
	}
}

// TestEventsAreKeptWithWhatTheyTellOf: the history of a sandbox that lives is whole, however old it is, and what is kept keeps
// nothing behind it.
func TestEventsAreKeptWithWhatTheyTellOf(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	lives, gone := newSandbox(), newSandbox()
	job := create(t, s, lives).Jobs[0].ID
	create(t, s, gone)
	newSchedule(t, s)
	exec(t, db, "UPDATE sandboxes SET expires_at = now() + interval '1 day'")
	exec(t, db, "DELETE FROM jobs WHERE sandbox_id = $1", gone.ID)
	exec(t, db, "DELETE FROM sandboxes WHERE id = $1", gone.ID)
	exec(t, db, `INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor)
		SELECT 'default', $1, 'old' || i, 'job.succeeded', 'test' FROM generate_series(1, 5) i`, lives.ID)
	exec(t, db, "ALTER TABLE events DISABLE TRIGGER ALL")
	exec(t, db, "UPDATE events SET at = at - interval '2 hours'")
	exec(t, db, "ALTER TABLE events ENABLE TRIGGER ALL")
	create(t, s, newSandbox())

	forgotten, rounds := 0, 0
	for last := int64(-1); last != 0; rounds++ {
		n, next, err := s.PruneEvents(t.Context(), max(last, 0), time.Hour, 3)
		must(t, err)
		forgotten, last = forgotten+n, next
	}
	if forgotten != 9 || rounds < 4 { // two of the one that is gone and two of timeouts, and five of jobs
		t.Errorf("%d events are forgotten in %d rounds", forgotten, rounds)
	}
	var left string
	must(t, db.QueryRowContext(t.Context(), "SELECT string_agg(event, ' ' ORDER BY id) FROM events WHERE at < now() - interval '1 hour'").Scan(&left))
	if left != "sandbox.creating job.queued schedule.created" {
		t.Errorf("of long ago is kept %q", left)
	}
	exec(t, db, "UPDATE jobs SET state = 'succeeded', finished_at = now() WHERE id = $1", job)
	exec(t, db, "DELETE FROM jobs WHERE id = $1", job)
	if n, _, err := s.PruneEvents(t.Context(), 0, time.Hour, 100); err != nil || n != 1 {
		t.Errorf("with its job %d events are forgotten, %v", n, err)
	}
}
