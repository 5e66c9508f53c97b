package models_test

import (
	"encoding/json"
	"errors"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestAJobThatHasEndedChangesNothing: the job ends while its attempt waits for the sandbox's lock. What is told to have
// ended must not take effect later, over what others have set since.
func TestAJobThatHasEndedChangesNothing(t *testing.T) {
	t.Parallel()
	value := "old"
	for kind, change := range map[string]func(*models.Store, models.Job) error{
		"env": func(s *models.Store, j models.Job) error {
			set := map[string]*string{"KEPT": &value}
			return s.ChangeEnv(t.Context(), j, models.EnvChange{Set: set, MostNames: 10, MostBytes: 100})
		},
		"egress": func(s *models.Store, j models.Job) error {
			return s.SetEgress(t.Context(), j, json.RawMessage(`{"allow":["*"]}`))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			endsWhileItWaits(t, kind, change)
		})
	}
}

func endsWhileItWaits(t *testing.T, kind string, change func(*models.Store, models.Job) error) {
	t.Helper()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	out := create(t, s, newSandbox(), kind)
	first := finish(t, s, out.Dispatch[0], models.SandboxRunning).Dispatch[0].JobID
	job, err := s.Claim(t.Context(), first, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	holds, looks := connect(t, dsn), connect(t, dsn)
	run := func(query string, args ...any) {
		t.Helper()
		if _, err := holds.Exec(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN")
	run("SELECT FROM sandboxes WHERE id = $1 FOR NO KEY UPDATE", job.SandboxID)
	changed := make(chan error, 1)
	go func() { changed <- change(s, job) }()
	testenv.Eventually(t, "the change waits for the lock", func() bool {
		var waiting int
		err := looks.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	})
	run("UPDATE jobs SET state = 'cancelled', lease_until = NULL, finished_at = now() WHERE id = $1", job.ID)
	run("COMMIT")
	if err := <-changed; !errors.Is(err, models.ErrStale) {
		t.Errorf("the change of a job that has ended: %v, want %v", err, models.ErrStale)
	}
	if env, err := s.Env(t.Context(), job.SandboxID); err != nil || len(env) != 0 {
		t.Errorf("the sandbox has the variables %v, %v", env, err)
	}
	if box, err := s.Sandbox(t.Context(), job.TenantID, job.SandboxID); err != nil || len(box.Egress) != 0 {
		t.Errorf("the sandbox has the policy %s, %v", box.Egress, err)
	}
}

// TestAJobClaimedDuringADeleteIsToldToStop: a worker claims it while the delete waits for the row of another.
func TestAJobClaimedDuringADeleteIsToldToStop(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	db, box := database(t, dsn), running(t, s)
	parallel := func(s *models.Submission) { s.Jobs[0].Parallel = true }
	first, second := submitOn(t, s, box.ID, "exec", parallel), submitOn(t, s, box.ID, "exec", parallel)
	_, err := s.Claim(t.Context(), first.Jobs[0].ID, "node", lease)
	must(t, err)
	release := lockRow(t, dsn, "jobs", first.Jobs[0].ID)
	deleted := submitting(s, models.Submission{
		TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{newJob(models.KindDelete, box.ID)},
		End: &models.End{Reason: "deleted", Actor: "test"},
	})
	testenv.Eventually(t, "the delete waits for the first job", func() bool {
		var waiting int
		must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 1
	})
	_, err = s.Claim(t.Context(), second.Jobs[0].ID, "node", lease)
	must(t, err)
	release()
	mustEnd(t, "the delete", deleted)
	for name, job := range map[string]string{"that ran": first.Jobs[0].ID, "that was claimed": second.Jobs[0].ID} {
		j, err := s.Job(t.Context(), "default", job)
		if must(t, err); j.State != models.Running || j.CancelRequestedAt == nil {
			t.Errorf("the job %s is %s, asked to stop at %v", name, j.State, j.CancelRequestedAt)
		}
	}
}
