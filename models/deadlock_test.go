package models_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// slowest bounds a submission in tests that look for deadlocks. PostgreSQL resolves each only after a second, and they come in rows.
const slowest = 5 * time.Second

// watch runs do and reports an error of it, or that it took longer than a deadlock lasts.
func watch(t *testing.T, what string, do func() error) {
	t.Helper()
	began := time.Now()
	err := do()
	if took := time.Since(began); err != nil || took > slowest {
		t.Errorf("%s: %v after %v", what, err, took)
	}
}

// TestSubmissionsNeverDeadlock has two API processes submit, for one tenant, what locks its row, its sandboxes and its keys in every
// combination, while jobs with callbacks end.
func TestSubmissionsNeverDeadlock(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	a := openAt(t, dsn, 100_000)
	db := database(t, dsn)
	if _, err := db.ExecContext(t.Context(), "UPDATE tenants SET max_sandboxes = 100000, max_queued = 100000000"); err != nil {
		t.Fatal(err)
	}
	b, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })

	made := create(t, a, newSandbox())
	shared := made.Sandbox
	finish(t, a, made.Dispatch[0], models.SandboxRunning)
	var all sync.WaitGroup
	for worker := range 8 {
		for i, s := range []*models.Store{a, b} {
			all.Go(func() {
				for round := range 25 {
					watch(t, "a create with a key", func() error { return createWithKey(s, fmt.Sprint(i, worker, round)) })
				}
			})
			all.Go(func() {
				for range 25 {
					watch(t, "an exec", func() error { return execOn(s, shared.ID) })
				}
			})
		}
	}
	all.Wait()

	var deadlocks int
	err = db.QueryRowContext(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)
	if err != nil || deadlocks != 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
}

func createWithKey(s *models.Store, key string) error {
	box := newSandbox()
	_, err := s.Submit(context.Background(), models.Submission{
		TenantID: "default", SandboxID: box.ID, New: box, Jobs: []models.Job{newJob(models.KindCreate, box.ID)},
		IdempotencyKey: key, Request: []byte(key),
	})
	return err
}

// execOn submits a parallel command with a callback, and ends it.
func execOn(s *models.Store, box string) error {
	job := newJob("exec", box)
	job.Parallel = true
	callback := "https://receiver.example/hook"
	job.CallbackURL = &callback
	_, err := s.Submit(context.Background(), models.Submission{TenantID: "default", SandboxID: box, Jobs: []models.Job{job}})
	if err != nil {
		return err
	}
	claimed, err := s.Claim(context.Background(), job.ID, "node", lease)
	if err != nil {
		return err
	}
	o := outcome(claimed, models.Succeeded, "")
	o.Callback = true
	_, err = s.Finish(context.Background(), o)
	return err
}
