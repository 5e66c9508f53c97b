package jobs_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// lived sums the seconds between an event that begins a state of a sandbox and the next that ends it.
func (r *rig) lived(box, state string) float64 {
	r.t.Helper()
	list, err := r.store.Events(r.t.Context(), tenant, models.EventFilter{Sandbox: box, Limit: 1000})
	r.must(err)
	var sum float64
	var since time.Time
	for i := len(list) - 1; i >= 0; i-- { // the newest comes first
		var detail struct{ From string }
		r.must(json.Unmarshal(list[i].Detail, &detail))
		if detail.From == state && list[i].Event != "sandbox.adopted" {
			sum += list[i].At.Sub(since).Seconds()
		}
		if list[i].Event == "sandbox."+state {
			since = list[i].At
		}
	}
	return sum
}

// unfolded counts rows that the scheduler has still to add to the hours.
func (r *rig) unfolded() (n int) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.dsn)
	r.must(err)
	defer conn.Close(r.t.Context())
	r.must(conn.QueryRow(r.t.Context(), "SELECT (SELECT count(*) FROM usage_facts) + (SELECT count(*) FROM usage_spans)").Scan(&n))
	return n
}

// TestUsageOfPausesTimeoutsAndLosses has the scheduler count three sandboxes, each with another end.
func TestUsageOfPausesTimeoutsAndLosses(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(8)
	r.scheduler()
	paused, lost, timed := r.readied(), r.readied(), r.readied()
	r.wait(r.submit(paused, &kind.Pause{}, options()))
	r.wait(r.submit(paused, &kind.Resume{}, options()))
	r.wait(r.submit(paused, &kind.Pause{}, options()))
	r.wait(r.exec(lost, "fake:crash"))
	r.submit(timed, &kind.SetTimeout{TimeoutSeconds: 1}, options())
	out, err := r.client.Delete(t.Context(), paused, false, options())
	r.must(err)
	r.wait(out.Jobs[0].ID)
	var running, stopped float64
	for _, box := range []string{paused, lost, timed} {
		r.eventually("it has ended", func() bool { return r.sandbox(box).EndedAt != nil })
		running, stopped = running+r.lived(box, "running"), stopped+r.lived(box, "paused")
	}
	r.eventually("all is folded", func() bool { return r.unfolded() == 0 })
	rows, err := r.store.Usage(t.Context(), models.UsageQuery{
		Tenant: tenant, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(time.Hour), By: []string{"user"}, Limit: 10,
	})
	r.must(err)
	var u models.Usage
	for _, row := range rows {
		u.RunningSeconds, u.PausedSeconds = u.RunningSeconds+row.RunningSeconds, u.PausedSeconds+row.PausedSeconds
	}
	if running < 1 || stopped == 0 || math.Abs(u.RunningSeconds-running) > 1e-5 || math.Abs(u.PausedSeconds-stopped) > 1e-5 {
		t.Errorf("by usage %g s running and %g s paused, by events %g and %g", u.RunningSeconds, u.PausedSeconds, running, stopped)
	}
}
