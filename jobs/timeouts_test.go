package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/models"
)

// quota lets the tenant have that many sandboxes at once.
func (r *rig) quota(sandboxes int) {
	r.T.Helper()
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(r.T.Context(), "UPDATE tenants SET max_sandboxes = $1", sandboxes)
	r.Must(err)
}

// running says how many sandboxes run.
func (r *rig) running() int {
	r.T.Helper()
	n, err := r.Store.CountSandboxes(r.T.Context(), jobsrig.Tenant, models.SandboxFilter{State: models.SandboxRunning})
	r.Must(err)
	return n
}

// fireAtOnce makes that many sandboxes that run due before there is a scheduler, and says how long it then takes to fire
// them all, beside a worker that deletes them.
func (r *rig) fireAtOnce(many int) time.Duration {
	r.T.Helper()
	r.quota(many)
	r.Worker(8)
	var all errgroup.Group
	all.SetLimit(50)
	for range many {
		all.Go(func() error {
			_, err := r.Client.Create(r.T.Context(), jobs.CreateSandbox{}, jobsrig.Options())
			return err
		})
	}
	r.Must(all.Wait())
	r.Eventually("all run", func() bool { return r.running() == many })
	r.SQL("UPDATE sandboxes SET expires_at = now()")
	if st, err := r.Store.Stats(r.T.Context()); err != nil || st.TimeoutLag <= 0 {
		r.T.Errorf("nobody fires, and the lag is %v, %v", st.TimeoutLag, err)
	}
	began := time.Now()
	r.Scheduler()
	r.Eventually("all are fired", func() bool { return r.running() == 0 })
	return time.Since(began)
}

func TestTimeoutsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	t.Logf("50 timeouts were fired within %v", r.fireAtOnce(50).Round(time.Millisecond))
	if st, err := r.Store.Stats(t.Context()); err != nil || st.TimeoutLag != 0 {
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
