package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"sandyard/jobs"
	"sandyard/models"
)

// quota lets the tenant have that many sandboxes at once.
func (r *rig) quota(sandboxes int) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.dsn)
	r.must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(r.t.Context(), "UPDATE tenants SET max_sandboxes = $1", sandboxes)
	r.must(err)
}

// running says how many sandboxes run.
func (r *rig) running() int {
	r.t.Helper()
	n, err := r.store.CountSandboxes(r.t.Context(), tenant, models.SandboxFilter{State: models.SandboxRunning})
	r.must(err)
	return n
}

// fireAtOnce makes that many sandboxes that run due before there is a scheduler, and says how long it then takes to fire
// them all, beside a worker that deletes them.
func (r *rig) fireAtOnce(many int) time.Duration {
	r.t.Helper()
	r.quota(many)
	r.worker(8)
	var all errgroup.Group
	all.SetLimit(50)
	for range many {
		all.Go(func() error {
			_, err := r.client.Create(r.t.Context(), jobs.CreateSandbox{}, options())
			return err
		})
	}
	r.must(all.Wait())
	r.eventually("all run", func() bool { return r.running() == many })
	r.sql("UPDATE sandboxes SET expires_at = now()")
	if st, err := r.store.Stats(r.t.Context()); err != nil || st.TimeoutLag <= 0 {
		r.t.Errorf("nobody fires, and the lag is %v, %v", st.TimeoutLag, err)
	}
	began := time.Now()
	r.scheduler()
	r.eventually("all are fired", func() bool { return r.running() == 0 })
	return time.Since(began)
}

func TestTimeoutsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	t.Logf("50 timeouts were fired within %v", r.fireAtOnce(50).Round(time.Millisecond))
	if st, err := r.store.Stats(t.Context()); err != nil || st.TimeoutLag != 0 {
		t.Errorf("all are fired, and the lag is %v, %v", st.TimeoutLag, err)
	}
}

// wantedFireMS is how long the last of a thousand sandboxes that are due at once may wait.
const wantedFireMS = 2000

// BenchmarkTimeouts measures how long a thousand sandboxes that are due at once wait to be fired,
// while a worker deletes them.
func BenchmarkTimeouts(b *testing.B) {
	b.Run("1,000 due at once/vs wanted at most", func(b *testing.B) {
		took := newRig(b).fireAtOnce(1000)
		b.ReportMetric(float64(took.Microseconds())/1000, "ours-p50-ms")
		b.ReportMetric(wantedFireMS, "base-p50-ms")
		b.ReportMetric(0, "ns/op")
	})
}
