package jobs_test

import (
	"sync"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

// TestManyTimeoutsAtOnce: a thousand sandboxes are due when the scheduler begins. On an idle machine they are all fired
// within two seconds; the test allows ten times that and prints what it took.
func TestManyTimeoutsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const many = 1000
	r.quota(many)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range many / 50 {
				if _, err := r.client.Create(t.Context(), jobs.CreateSandbox{TimeoutSeconds: 1}, options()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r.eventually("all are due", func() bool {
		due, err := r.store.DueTimeouts(t.Context(), many)
		r.must(err)
		return len(due) == many
	})
	st, err := r.store.Stats(t.Context())
	if err != nil || st.TimeoutLag <= 0 {
		t.Errorf("nobody fires, and the lag is %v, %v", st.TimeoutLag, err)
	}
	began := time.Now()
	r.scheduler()
	r.eventually("all are fired", func() bool {
		fired, err := r.store.CountSandboxes(t.Context(), tenant, models.SandboxFilter{State: models.SandboxDeleting})
		r.must(err)
		return fired == many
	})
	took := time.Since(began)
	t.Logf("%d timeouts were fired within %v", many, took.Round(time.Millisecond))
	if took > 20*time.Second {
		t.Errorf("they took %v", took)
	}
	if st, err := r.store.Stats(t.Context()); err != nil || st.TimeoutLag != 0 {
		t.Errorf("all are fired, and the lag is %v, %v", st.TimeoutLag, err)
	}
}
