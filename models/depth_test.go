package models_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestQueueLimitsHoldUnderConcurrency submits many times what a tenant may have waiting.
func TestQueueLimitsHoldUnderConcurrency(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	first := openAt(t, dsn, 1)
	db := database(t, dsn)
	box := create(t, first, newSandbox()).Sandbox
	for _, limit := range []struct {
		name, set string
		count     int
		input     int
	}{
		{"max_queued", "UPDATE tenants SET max_queued = 10", 10, 0},
		{"max_queued_bytes", "UPDATE tenants SET max_queued = 1000, max_queued_bytes = 10 * 1050", 10, 1000},
	} {
		if _, err := db.ExecContext(t.Context(), limit.set); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "DELETE FROM jobs"); err != nil {
			t.Fatal(err)
		}
		s, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 1}) // which has not counted yet
		if err != nil {
			t.Fatal(err)
		}
		accepted, refused := 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				sub := jobOn(box)
				sub.Jobs[0].Input = make([]byte, limit.input)
				_, err := s.Submit(context.Background(), sub)
				mu.Lock()
				defer mu.Unlock()
				var met *models.LimitError
				switch {
				case err == nil:
					accepted++
				case errors.As(err, &met) && met.Limit == limit.name:
					refused++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if accepted > limit.count || accepted < limit.count/2 || refused != 100-accepted {
			t.Errorf("%s: %d accepted, %d refused, the limit lets %d in", limit.name, accepted, refused, limit.count)
		}
		del := newJob(models.KindDelete, box.ID)
		if _, err := s.Submit(t.Context(), models.Submission{TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{del}}); err != nil {
			t.Errorf("a delete, which makes room: %v", err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE sandboxes SET desired = 'running'"); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
