package jobs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// wantRuns waits until a schedule's runs are in these states.
func (r *rig) wantRuns(schedule string, states ...string) []models.ScheduleRun {
	r.T.Helper()
	var got []models.ScheduleRun
	r.Eventually("the runs are "+strings.Join(states, ", "), func() bool {
		got = r.Runs(schedule)
		return slices.Equal(jobsrig.StatesOf(got), states)
	})
	return got
}

func (r *rig) readSchedule(id string) models.Schedule {
	r.T.Helper()
	s, err := r.Store.Schedule(r.T.Context(), jobsrig.Tenant, id)
	r.Must(err)
	return s
}

// readied returns a running sandbox.
func (r *rig) readied() string {
	r.T.Helper()
	box, created := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(created); j.State != models.Succeeded {
		r.T.Fatalf("the create ended %s", j.State)
	}
	return box
}

func TestSchedulesSubmitOrdinaryJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	box := r.readied()
	exec := r.Schedule(jobsrig.ExecIn(box, "fake:stdout hi; fake:exit 3"))
	once := r.Schedule(jobs.Action{Run: &jobs.OneShot{
		Files: []kind.Write{{Path: "a", Content: "x\x00y"}}, Exec: kind.Exec{Command: "fake:stdout hello"},
	}})
	keyed := r.Schedule(jobs.Action{Create: &jobs.CreateSandbox{Key: "nightly"}})
	r.Due(time.Second, exec, once, keyed)
	r.Scheduler()

	ran := r.wantRuns(exec, "succeeded")[0]
	if j := r.Job(*ran.JobID); string(j.Stdout) != "hi" || j.SandboxID != box || j.Actor != "schedule:"+exec || *ran.ExitCode != 3 {
		t.Errorf("the run %+v has the job %+v", ran, j)
	}
	if s := r.readSchedule(exec); s.ConsecutiveFailures != 1 || s.NextDue.Sub(ran.DueAt) != time.Hour || !s.LastDue.Equal(ran.DueAt) {
		t.Errorf("the schedule is %+v", s)
	}
	ran = r.wantRuns(once, "succeeded")[0]
	if j := r.Job(*ran.JobID); string(j.Stdout) != "hello" || j.Kind != "exec" || j.SandboxID != *ran.SandboxID {
		t.Errorf("the run %+v has the job %+v", ran, j)
	}
	r.Eventually("the run's sandbox is gone", func() bool { return r.Sandbox(*ran.SandboxID).State == models.SandboxDeleted })
	r.wantRuns(keyed, "succeeded")
	r.Due(time.Second, keyed)
	if again := r.wantRuns(keyed, "succeeded", "skipped"); !strings.Contains(*again[1].Reason, "already live") {
		t.Errorf("the second create was %+v", again[1])
	}
}

func TestFailuresOfASchedule(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	box := r.readied()
	id := r.Schedule(jobsrig.ExecIn(box, "fake:exit 1"))
	want := []string{}
	for i := range 3 {
		if i == 2 {
			_, err := r.Client.ChangeSchedule(t.Context(), jobsrig.Tenant, id, "test", func(s *models.Schedule) error {
				return jobs.SetAction(s, jobsrig.ExecIn(box, "fake:exit 0"), jobs.Standing{})
			})
			r.Must(err)
		}
		r.Due(time.Duration(10-i)*time.Second, id)
		want = append(want, "succeeded")
		r.wantRuns(id, want...)
		if got := r.readSchedule(id).ConsecutiveFailures; got != []int{1, 2, 0}[i] {
			t.Errorf("after run %d there are %d failures", i, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	r.Scheduler()
	box := r.readied()
	policy := func(p string) func(*models.Schedule) { return func(s *models.Schedule) { s.Overlap = p } }
	long := func() jobs.Action { // in a sandbox of its own, as the three go at the same time
		return jobs.Action{Run: &jobs.OneShot{Exec: kind.Exec{Command: "fake:sleep 1h"}}}
	}
	skip, queue := r.Schedule(jobsrig.ExecIn(box, "fake:sleep 1h")), r.Schedule(long(), policy(models.OverlapQueue))
	replace := r.Schedule(long(), policy(models.OverlapCancel))
	all := []string{skip, queue, replace}
	r.Due(30*time.Second, all...)
	first := map[string]string{}
	for _, id := range all {
		job := *r.wantRuns(id, models.RunSubmitted)[0].JobID
		first[id] = job
		r.Eventually("it runs", func() bool { return r.Job(job).State == models.Running })
	}

	r.Due(20*time.Second, all...)
	if x := r.wantRuns(skip, models.RunSubmitted, models.RunSkipped)[1]; *x.Reason != "an earlier run has not ended" || x.JobID != nil {
		t.Errorf("skipped: %+v", x)
	}
	r.wantRuns(queue, models.RunSubmitted, models.RunPending)
	second := r.wantRuns(replace, "cancelled", models.RunSubmitted)[1]
	if j := r.Job(*second.JobID); r.Job(first[replace]).FinishedAt.After(j.QueuedAt) {
		t.Errorf("the second run was submitted before the first had ended")
	}

	r.Due(10*time.Second, queue)
	r.wantRuns(queue, models.RunSubmitted, models.RunPending, models.RunPending)
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, first[queue], "test")
	r.Must(err)
	r.wantRuns(queue, "cancelled", models.RunSubmitted, models.RunPending)
	_, err = r.Client.PauseSchedule(t.Context(), jobsrig.Tenant, queue, "test")
	r.Must(err)
	if x := r.wantRuns(queue, "cancelled", models.RunSubmitted, models.RunSkipped)[2]; *x.Reason != "the schedule was paused" {
		t.Errorf("what waited when the schedule was paused: %+v", x)
	}
}

func TestMissedTimesAreMadeGood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	box := r.readied()
	policy := func(p string) func(*models.Schedule) {
		return func(s *models.Schedule) { s.Missed, s.MaxCatchUp = p, 3 }
	}
	skip, once := r.Schedule(jobsrig.ExecIn(box, "fake:exit 0")), r.Schedule(jobsrig.ExecIn(box, "fake:exit 0"), policy(models.MissedRunOnce))
	all := r.Schedule(jobsrig.ExecIn(box, "fake:append all x"), policy(models.MissedRunAll))
	r.Due(5*time.Hour+30*time.Minute, skip, once, all)
	r.Scheduler()
	if x := r.wantRuns(skip, models.RunSkipped)[0]; x.Ticks != 6 {
		t.Errorf("%d times were skipped", x.Ticks)
	}
	if x := r.wantRuns(once, models.RunSkipped, "succeeded"); x[0].Ticks != 5 {
		t.Errorf("%d times were skipped before the one", x[0].Ticks)
	}
	got := r.wantRuns(all, models.RunSkipped, "succeeded", "succeeded", "succeeded")
	if got[0].Ticks != 3 {
		t.Errorf("%d times were skipped before the three", got[0].Ticks)
	}
	for i := 2; i < 4; i++ {
		if before, j := r.Job(*got[i-1].JobID), r.Job(*got[i].JobID); before.FinishedAt.After(j.QueuedAt) {
			t.Errorf("run %d was submitted before the one before had ended", i)
		}
	}
	if s := r.readSchedule(all); time.Until(*s.NextDue) > time.Hour || time.Until(*s.NextDue) < 0 {
		t.Errorf("it is due next at %v", s.NextDue)
	}
}

func TestAScheduleWithoutItsSandboxIsDisabled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box := r.readied()
	id := r.Schedule(jobsrig.ExecIn(box, "fake:exit 0"))
	template := r.Schedule(jobs.Action{Run: &jobs.OneShot{Template: "python", Exec: kind.Exec{Command: "fake:exit 0"}}})
	out, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	r.SQL(`UPDATE schedules SET action = replace(action::text, 'python', 'gone')::json WHERE id = $1`, template)
	r.Due(time.Second, id, template)
	r.Scheduler()
	for id, why := range map[string]string{id: "sandbox " + box + " is deleted", template: `unknown template "gone"`} {
		x := r.wantRuns(id, models.RunFailed)[0]
		r.Eventually("it is disabled", func() bool { return r.readSchedule(id).State == models.ScheduleDisabled })
		s := r.readSchedule(id)
		if !strings.Contains(*s.Reason, why) || *x.Reason != *s.Reason || x.JobID != nil || s.NextDue != nil || s.ConsecutiveFailures != 1 {
			t.Errorf("the schedule is %+v, with the reason %s, its run %+v", s, *s.Reason, x)
		}
		list, err := r.Store.Events(t.Context(), jobsrig.Tenant, models.EventFilter{Schedule: id, Limit: 10})
		r.Must(err)
		if len(list) != 2 || list[0].Event != "schedule.disabled" || *list[0].Reason != *s.Reason || list[1].Event != "schedule.created" {
			t.Errorf("the events are %+v", list)
		}
	}
	_, err = r.Client.ResumeSchedule(t.Context(), jobsrig.Tenant, id, "test")
	if ended := (*models.EndedError)(nil); !errors.As(err, &ended) {
		t.Errorf("resumed without its sandbox: %v", err)
	}
}

func TestALimitDelaysARun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.Schedule(jobs.Action{Create: &jobs.CreateSandbox{}})
	r.quota(0)
	r.Due(time.Second, id)
	r.Scheduler()
	r.Eventually("it is tried again later", func() bool {
		x := r.Runs(id)
		return len(x) == 1 && x[0].State == models.RunPending && x[0].Attempts > 0 && strings.Contains(*x[0].Reason, "max_sandboxes")
	})
	r.quota(10)
	r.SQL("UPDATE schedule_runs SET retry_at = now()")
	x := r.wantRuns(id, models.RunSubmitted)[0]
	if x.Reason != nil || x.JobID == nil {
		t.Errorf("at last the run is %+v", x)
	}
	r.quota(0)
	r.SQL("UPDATE jobs SET state = 'failed', finished_at = now()") // no worker is there
	r.wantRuns(id, "failed")
	r.Due(0, id)
	r.Eventually("it is given up", func() bool {
		r.SQL("UPDATE schedule_runs SET retry_at = now() WHERE state = 'pending'")
		x := r.Runs(id)
		return len(x) == 2 && x[1].State == models.RunFailed && x[1].JobID == nil
	})
	if s := r.readSchedule(id); s.State != models.ScheduleActive || s.ConsecutiveFailures == 0 {
		t.Errorf("a limit makes of the schedule %+v", s)
	}
}

// TestARunThatAlwaysFailsWaits: the scheduler does not submit it again on each tick, and other schedules fire.
func TestARunThatAlwaysFailsWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$`)
	r.SQL(`CREATE TRIGGER refuse BEFORE INSERT ON sandboxes FOR EACH ROW WHEN (NEW.labels->>'poison' = 'yes') EXECUTE FUNCTION refuse()`)
	poison := r.Schedule(jobs.Action{Create: &jobs.CreateSandbox{Labels: map[string]string{"poison": "yes"}}})
	sound := r.Schedule(jobs.Action{Create: &jobs.CreateSandbox{}})
	r.Due(time.Second, poison, sound)
	r.Scheduler()
	for tries := 1; tries <= 3; tries++ {
		r.Eventually("it is tried again", func() bool {
			x := r.Runs(poison)
			return len(x) == 1 && x[0].State == models.RunPending && x[0].Attempts == tries && strings.Contains(*x[0].Reason, "internal error")
		})
		r.SQL("UPDATE schedule_runs SET retry_at = now() WHERE state = 'pending' AND retry_at > now() + $1 * interval '1 s' / 2", 1<<(tries-1))
	}
	r.wantRuns(sound, models.RunSubmitted)
}

// fireSchedulesAtOnce makes that many schedules due before there is a scheduler, and says how long it takes until each has
// its job.
func (r *rig) fireSchedulesAtOnce(many int) time.Duration {
	r.T.Helper()
	r.quota(2 * many)
	r.SQL("UPDATE tenants SET max_schedules = $1", many)
	for range many {
		r.Schedule(jobs.Action{Run: &jobs.OneShot{Exec: kind.Exec{Command: "fake:exit 0"}}})
	}
	r.SQL("UPDATE schedules SET next_due = now()")
	if st, err := r.Store.Stats(r.T.Context()); err != nil || st.ScheduleLag <= 0 {
		r.T.Errorf("nobody fires, and the lag is %v, %v", st.ScheduleLag, err)
	}
	began := time.Now()
	r.Scheduler()
	r.Eventually("all are fired", func() bool {
		n, err := r.Store.CountSandboxes(r.T.Context(), jobsrig.Tenant, models.SandboxFilter{})
		r.Must(err)
		return n == many
	})
	return time.Since(began)
}

func TestSchedulesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	t.Logf("50 schedules were fired within %v", r.fireSchedulesAtOnce(50).Round(time.Millisecond))
	if st, err := r.Store.Stats(t.Context()); err != nil || st.ScheduleLag != 0 {
		t.Errorf("all are fired, and the lag is %v, %v", st.ScheduleLag, err)
	}
}

// BenchmarkThousandSchedulesAtOnce measures how long a thousand schedules that are due at once wait for their jobs.
func BenchmarkThousandSchedulesAtOnce(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(newRig(b).fireSchedulesAtOnce(1000).Seconds(), "s-to-fire")
	}
}

// TestSchedulesOutliveTheirKeys: a schedule is the tenant's, so revoking the key that made it does not end it.
func TestSchedulesOutliveTheirKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box := r.readied()
	plain, err := r.Store.CreateKey(t.Context(), jobsrig.Tenant, "old", []string{models.ScopeSandboxes})
	r.Must(err)
	key, err := r.Store.Authenticate(t.Context(), plain)
	r.Must(err)
	id := r.Schedule(jobsrig.ExecIn(box, "fake:exit 0"), func(s *models.Schedule) { s.CreatedBy = key.ID })
	r.SQL("UPDATE api_keys SET revoked_at = now() WHERE id = $1", key.ID)
	if _, err := r.Store.Authenticate(t.Context(), plain); !errors.Is(err, models.ErrRevoked) {
		t.Fatalf("the key is not revoked: %v", err)
	}
	r.Due(time.Second, id)
	r.Scheduler()
	r.wantRuns(id, "succeeded")
	list, err := r.Store.Schedules(t.Context(), jobsrig.Tenant, models.ScheduleFilter{CreatedBy: key.ID, Limit: 2})
	r.Must(err)
	if others, err := r.Store.Schedules(t.Context(), jobsrig.Tenant, models.ScheduleFilter{CreatedBy: "key_other", Limit: 2}); len(list) != 1 || len(others) != 0 {
		t.Errorf("%d schedules of the key and %d of another, %v", len(list), len(others), err)
	}
	if s := r.readSchedule(id); s.State != models.ScheduleActive || s.CreatedBy != key.ID {
		t.Errorf("the schedule is %+v", s)
	}
}
