package models_test

import (
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestActivityNeverGoesBack: a transaction that waited for the sandbox's row began before the one it waited for.
func TestActivityNeverGoesBack(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	db := database(t, dsn)
	made := create(t, s, newSandbox())
	box := made.Sandbox.ID
	if _, err := db.ExecContext(t.Context(), "UPDATE sandboxes SET last_active_at = now() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	check := func(step string) {
		t.Helper()
		got, err := s.Sandbox(t.Context(), "default", box)
		if err != nil || time.Until(got.LastActiveAt) < 50*time.Minute {
			t.Errorf("after %s it was active last at %v, %v", step, got.LastActiveAt, err)
		}
	}
	finish(t, s, made.Dispatch[0], models.SandboxRunning)
	check("the create")
	out, err := s.Submit(t.Context(), models.Submission{TenantID: "default", SandboxID: box, Jobs: []models.Job{newJob("exec", box)}})
	if err != nil {
		t.Fatal(err)
	}
	check("a submission")
	finish(t, s, out.Dispatch[0], "")
	check("the end of a job")
	if _, err := s.Touch(t.Context(), []string{box}); err != nil {
		t.Fatal(err)
	}
	check("traffic")
}
