package jobs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// TestTheDatabasesClockRules works on a database whose clock is an hour ahead of the API's, the workers' and the scheduler's,
// and on one that is an hour behind. Everything happens in its time, and neither too early nor never.
func TestTheDatabasesClockRules(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testenv.Skewed(t, by)
			testdb.Migrate(t, dsn)
			r := newRigOn(t, dsn)
			r.Scheduler()
			r.Worker(8, func(c *worker.Config) { c.Lease = 5 * time.Second })
			if off := r.Store.Ahead(t.Context()) - by; off.Abs() > time.Minute {
				t.Fatalf("the database's clock is taken for %v wrong", off)
			}
			t.Run("lives", func(t *testing.T) { t.Parallel(); r.at(t).lives() })
			t.Run("jobs", func(t *testing.T) { t.Parallel(); r.at(t).deadlines() })
			t.Run("schedules", func(t *testing.T) { t.Parallel(); r.at(t).dueTimes() })
			t.Run("webhooks", func(t *testing.T) { t.Parallel(); r.at(t).stamps(by) })
		})
	}
}

// at is the rig for a part of its test.
func (r *rig) at(t *testing.T) *rig {
	part := *r.Rig
	part.T = t
	return &rig{&part}
}

// lives looks that a sandbox ends by its timeout and by its idleness, and one that has time left does not.
func (r *rig) lives() {
	lasting := r.readied()
	began := time.Now()
	brief, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 2})
	idle, _ := r.Create(jobs.CreateSandbox{IdleTimeoutSeconds: 2})
	for _, box := range []string{brief, idle} {
		r.Eventually("it has ended", func() bool { return r.Sandbox(box).EndedAt != nil })
		if lived := r.Sandbox(box).EndedAt.Sub(*r.Sandbox(box).StartedAt); lived < time.Second || time.Since(began) < 2*time.Second {
			r.T.Errorf("sandbox %s lived for %v", box, lived)
		}
	}
	if j := r.Wait(r.Exec(lasting, "fake:stdout lives")); string(j.Stdout) != "lives" {
		r.T.Errorf("the sandbox that lasts: %s %+v", j.State, j.Error)
	}
}

// deadlines looks at the times of jobs: a lease that is kept, a queue deadline, the timeouts of a command and of a wait.
func (r *rig) deadlines() {
	box := r.readied()
	behind := jobsrig.Options()
	behind.Parallel = true
	started := r.Wait(r.Submit(box, &kind.Exec{Command: "fake:sleep 1h", Background: true}, behind))
	waits := r.Submit(box, &kind.ExecWait{ExecRef: kind.ExecRef{ExecID: started.ID}, TimeoutSeconds: 2}, behind)
	long := r.Exec(box, "fake:sleep 8s") // longer than a lease
	soon, late := jobsrig.Options(), jobsrig.Options()
	soon.QueueDeadline, late.QueueDeadline = 2*time.Second, time.Hour/2
	expires, stays := r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, soon), r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, late)
	timed := r.Submit(box, &kind.Exec{Command: "fake:sleep 1h", TimeoutSeconds: 1}, jobsrig.Options())
	for id, want := range map[string]models.JobState{
		expires: models.Expired, long: models.Succeeded, stays: models.Succeeded, timed: models.TimedOut, waits: models.TimedOut,
	} {
		if j := r.Wait(id); j.State != want || j.Attempt > 3 { // a busy machine may miss a beat
			r.T.Errorf("%s ended %s at attempt %d, want %s: %+v", j.Kind, j.State, j.Attempt, want, j.Error)
		}
	}
	if j := r.Job(waits); j.FinishedAt.Sub(*j.StartedAt) < time.Second {
		r.T.Errorf("the wait was given up after %v", j.FinishedAt.Sub(*j.StartedAt))
	}
}

// dueTimes looks at a schedule that is due now and one that is in an hour.
func (r *rig) dueTimes() {
	box := r.readied()
	now, later := r.Schedule(jobsrig.ExecIn(box, "fake:exit 0")), r.Schedule(jobsrig.ExecIn(box, "fake:exit 0"))
	r.SQL("UPDATE schedules SET next_due = now() + interval '1 second' WHERE id = $1", now)
	r.wantRuns(now, "succeeded")
	ago, soon := r.Store.Now(r.T.Context()).Add(-time.Minute), r.Store.Now(r.T.Context()).Add(time.Minute)
	for _, one := range r.Runs(now) { // its history goes by ids, which several schedulers make
		if one.ID < models.NewIDAt("run_", ago) || one.ID > models.NewIDAt("run_", soon) {
			r.T.Errorf("the run %s is not from between %v and %v", one.ID, ago, soon)
		}
	}
	if runs := r.Runs(later); len(runs) > 0 {
		r.T.Errorf("a schedule that is due in an hour has the runs %+v", runs)
	}
}

// stamps looks at the time in a webhook, which receivers compare with theirs.
func (r *rig) stamps(by time.Duration) {
	got := make(chan time.Duration, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if at, err := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64); err == nil {
			got <- time.Until(time.Unix(at, 0))
		}
	}))
	defer receiver.Close()
	o := jobsrig.Options()
	o.CallbackURL = receiver.URL
	box := r.readied()
	j := r.Wait(r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, o))
	if !json.Valid(j.Result) {
		r.T.Errorf("the job has the result %s", j.Result)
	}
	select {
	case off := <-got:
		if (off - by).Abs() > 3*time.Minute {
			r.T.Errorf("the webhook says a time that is %v wrong", off-by)
		}
	case <-time.After(time.Minute):
		r.T.Error("no webhook has come")
	}
}
