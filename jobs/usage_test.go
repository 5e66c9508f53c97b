package jobs_test

import (
	"math"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// TestUsageOfPausesTimeoutsAndLosses has the scheduler count three sandboxes, each with another end.
func TestUsageOfPausesTimeoutsAndLosses(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	r.Scheduler()
	paused, lost, timed := r.readied(), r.readied(), r.readied()
	r.Wait(r.Submit(paused, &kind.Pause{}, jobsrig.Options()))
	r.Wait(r.Submit(paused, &kind.Resume{}, jobsrig.Options()))
	r.Wait(r.Submit(paused, &kind.Pause{}, jobsrig.Options()))
	r.Wait(r.Exec(lost, "fake:crash"))
	r.Submit(timed, &kind.SetTimeout{TimeoutSeconds: 1}, jobsrig.Options())
	out, err := r.Client.Delete(t.Context(), paused, false, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	var running, stopped float64
	for _, box := range []string{paused, lost, timed} {
		r.Eventually("it has ended", func() bool { return r.Sandbox(box).EndedAt != nil })
		running, stopped = running+r.Lived(box, "running"), stopped+r.Lived(box, "paused")
	}
	r.Eventually("all is folded", func() bool { return r.Unfolded() == 0 })
	rows, err := r.Store.Usage(t.Context(), models.UsageQuery{
		Tenant: jobsrig.Tenant, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(time.Hour), By: []string{"user"}, Limit: 10,
	})
	r.Must(err)
	var u models.Usage
	for _, row := range rows {
		u.RunningSeconds, u.PausedSeconds = u.RunningSeconds+row.RunningSeconds, u.PausedSeconds+row.PausedSeconds
	}
	if running < 1 || stopped == 0 || math.Abs(u.RunningSeconds-running) > 1e-5 || math.Abs(u.PausedSeconds-stopped) > 1e-5 {
		t.Errorf("by usage %g s running and %g s paused, by events %g and %g", u.RunningSeconds, u.PausedSeconds, running, stopped)
	}
}
