package models_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestSubmissionsNeverDeadlock has two API processes submit, for one tenant, what locks its row, its sandboxes and its keys in every
// combination, while jobs with callbacks end.
func TestSubmissionsNeverDeadlock(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	first := openAt(t, dsn, 100_000)
	db := database(t, dsn)
	if _, err := db.ExecContext(t.Context(), "UPDATE tenants SET max_sandboxes = 100000, max_queued = 100000000"); err != nil {
		t.Fatal(err)
	}
	var stores []*models.Store
	for range 2 {
		s, err := models.Open(t.Context(), dsn+"&application_name=submits", 8, models.Limits{Window: 100_000})
		must(t, err)
		stores = append(stores, s)
	}

	made := create(t, first, newSandbox())
	shared := made.Sandbox
	finish(t, first, made.Dispatch[0], models.SandboxRunning)
	var all sync.WaitGroup
	for worker := range 8 {
		for i, s := range stores {
			all.Go(func() {
				for round := range 25 {
					if err := createWithKey(s, fmt.Sprint(i, worker, round)); err != nil {
						t.Errorf("a create with a key: %v", err)
					}
				}
			})
			all.Go(func() {
				for range 25 {
					if err := execOn(s, shared.ID); err != nil {
						t.Errorf("an exec: %v", err)
					}
				}
			})
		}
	}
	all.Wait()
	for _, s := range stores {
		must(t, s.Close())
	}
	testenv.Eventually(t, "their connections are gone, and what they counted is told", func() bool {
		var left int
		must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'submits' AND datname = current_database()").Scan(&left))
		return left == 0
	})
	var deadlocks int
	err := db.QueryRowContext(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)
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
