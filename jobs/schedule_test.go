package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// sql changes rows behind the store's back, such as the time at which something is due.
func (r *rig) sql(statement string, args ...any) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.dsn)
	r.must(err)
	defer conn.Close(context.WithoutCancel(r.t.Context()))
	_, err = conn.Exec(r.t.Context(), statement, args...)
	r.must(err)
}

// schedule makes one that is due every hour, for the first time in an hour.
func (r *rig) schedule(a jobs.Action, change ...func(*models.Schedule)) string {
	r.t.Helper()
	every := time.Hour.Milliseconds()
	s := models.Schedule{TenantID: tenant, CreatedBy: "test", IntervalMS: &every}
	r.must(jobs.SetAction(&s, a, jobs.Standing{}))
	for _, f := range change {
		f(&s)
	}
	s, err := r.client.CreateSchedule(r.t.Context(), s)
	r.must(err)
	return s.ID
}

// due makes schedules due so long ago.
func (r *rig) due(ago time.Duration, ids ...string) {
	r.t.Helper()
	r.sql(`UPDATE schedules SET next_due = now() - $1 * interval '1 ms', anchor = now() - $1 * interval '1 ms' - interval_ms * interval '1 ms'
		WHERE id = ANY ($2)`, ago.Milliseconds(), ids)
}

func execIn(box, script string) jobs.Action {
	return jobs.Action{Job: &jobs.SandboxJob{SandboxID: box, Kind: "exec", Args: map[string]any{"command": script}}}
}

// runs lists a schedule's runs, in the order in which they were due.
func (r *rig) runs(schedule string) []models.ScheduleRun {
	r.t.Helper()
	list, err := r.store.ScheduleRuns(r.t.Context(), tenant, schedule, "", 1000)
	r.must(err)
	slices.SortFunc(list, func(x, y models.ScheduleRun) int { return x.DueAt.Compare(y.DueAt) })
	return list
}

// wantRuns waits until a schedule's runs are in these states.
func (r *rig) wantRuns(schedule string, states ...string) []models.ScheduleRun {
	r.t.Helper()
	var got []models.ScheduleRun
	r.eventually("the runs are "+strings.Join(states, ", "), func() bool {
		got = r.runs(schedule)
		return slices.Equal(statesOf(got), states)
	})
	return got
}

func statesOf(runs []models.ScheduleRun) []string {
	var states []string
	for _, x := range runs {
		states = append(states, x.State)
	}
	return states
}

func (r *rig) readSchedule(id string) models.Schedule {
	r.t.Helper()
	s, err := r.store.Schedule(r.t.Context(), tenant, id)
	r.must(err)
	return s
}

// readied returns a running sandbox.
func (r *rig) readied() string {
	r.t.Helper()
	box, created := r.create(jobs.CreateSandbox{})
	if j := r.wait(created); j.State != models.Succeeded {
		r.t.Fatalf("the create ended %s", j.State)
	}
	return box
}

func TestSchedulesSubmitOrdinaryJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(8)
	box := r.readied()
	exec := r.schedule(execIn(box, "fake:stdout hi; fake:exit 3"))
	once := r.schedule(jobs.Action{Run: &jobs.OneShot{
		Files: []kind.Write{{Path: "a", Content: "x\x00y"}}, Exec: kind.Exec{Command: "fake:stdout hello"},
	}})
	keyed := r.schedule(jobs.Action{Create: &jobs.CreateSandbox{Key: "nightly"}})
	r.due(time.Second, exec, once, keyed)
	r.scheduler()

	ran := r.wantRuns(exec, "succeeded")[0]
	if j := r.job(*ran.JobID); string(j.Stdout) != "hi" || j.SandboxID != box || j.Actor != "schedule:"+exec || *ran.ExitCode != 3 {
		t.Errorf("the run %+v has the job %+v", ran, j)
	}
	if s := r.readSchedule(exec); s.ConsecutiveFailures != 1 || s.NextDue.Sub(ran.DueAt) != time.Hour || !s.LastDue.Equal(ran.DueAt) {
		t.Errorf("the schedule is %+v", s)
	}
	ran = r.wantRuns(once, "succeeded")[0]
	if j := r.job(*ran.JobID); string(j.Stdout) != "hello" || j.Kind != "exec" || j.SandboxID != *ran.SandboxID {
		t.Errorf("the run %+v has the job %+v", ran, j)
	}
	r.eventually("the run's sandbox is gone", func() bool { return r.sandbox(*ran.SandboxID).State == models.SandboxDeleted })
	r.wantRuns(keyed, "succeeded")
	r.due(time.Second, keyed)
	if again := r.wantRuns(keyed, "succeeded", "skipped"); !strings.Contains(*again[1].Reason, "already live") {
		t.Errorf("the second create was %+v", again[1])
	}
}

func TestFailuresOfASchedule(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	r.scheduler()
	box := r.readied()
	id := r.schedule(execIn(box, "fake:exit 1"))
	want := []string{}
	for i := range 3 {
		if i == 2 {
			_, err := r.client.ChangeSchedule(t.Context(), tenant, id, "test", func(s *models.Schedule) error {
				return jobs.SetAction(s, execIn(box, "fake:exit 0"), jobs.Standing{})
			})
			r.must(err)
		}
		r.due(time.Duration(10-i)*time.Second, id)
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
	r.worker(8)
	r.scheduler()
	box := r.readied()
	policy := func(p string) func(*models.Schedule) { return func(s *models.Schedule) { s.Overlap = p } }
	long := func() jobs.Action { // in a sandbox of its own, as the three go at the same time
		return jobs.Action{Run: &jobs.OneShot{Exec: kind.Exec{Command: "fake:sleep 1h"}}}
	}
	skip, queue := r.schedule(execIn(box, "fake:sleep 1h")), r.schedule(long(), policy(models.OverlapQueue))
	replace := r.schedule(long(), policy(models.OverlapCancel))
	all := []string{skip, queue, replace}
	r.due(30*time.Second, all...)
	first := map[string]string{}
	for _, id := range all {
		job := *r.wantRuns(id, models.RunSubmitted)[0].JobID
		first[id] = job
		r.eventually("it runs", func() bool { return r.job(job).State == models.Running })
	}

	r.due(20*time.Second, all...)
	if x := r.wantRuns(skip, models.RunSubmitted, models.RunSkipped)[1]; *x.Reason != "an earlier run has not ended" || x.JobID != nil {
		t.Errorf("skipped: %+v", x)
	}
	r.wantRuns(queue, models.RunSubmitted, models.RunPending)
	second := r.wantRuns(replace, "cancelled", models.RunSubmitted)[1]
	if j := r.job(*second.JobID); r.job(first[replace]).FinishedAt.After(j.QueuedAt) {
		t.Errorf("the second run was submitted before the first had ended")
	}

	r.due(10*time.Second, queue)
	r.wantRuns(queue, models.RunSubmitted, models.RunPending, models.RunPending)
	_, err := r.client.Cancel(t.Context(), tenant, first[queue], "test")
	r.must(err)
	r.wantRuns(queue, "cancelled", models.RunSubmitted, models.RunPending)
	_, err = r.client.PauseSchedule(t.Context(), tenant, queue, "test")
	r.must(err)
	if x := r.wantRuns(queue, "cancelled", models.RunSubmitted, models.RunSkipped)[2]; *x.Reason != "the schedule was paused" {
		t.Errorf("what waited when the schedule was paused: %+v", x)
	}
}

func TestMissedTimesAreMadeGood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(8)
	box := r.readied()
	policy := func(p string) func(*models.Schedule) {
		return func(s *models.Schedule) { s.Missed, s.MaxCatchUp = p, 3 }
	}
	skip, once := r.schedule(execIn(box, "fake:exit 0")), r.schedule(execIn(box, "fake:exit 0"), policy(models.MissedRunOnce))
	all := r.schedule(execIn(box, "fake:append all x"), policy(models.MissedRunAll))
	r.due(5*time.Hour+30*time.Minute, skip, once, all)
	r.scheduler()
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
		if before, j := r.job(*got[i-1].JobID), r.job(*got[i].JobID); before.FinishedAt.After(j.QueuedAt) {
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
	r.worker(4)
	box := r.readied()
	id := r.schedule(execIn(box, "fake:exit 0"))
	template := r.schedule(jobs.Action{Run: &jobs.OneShot{Template: "python", Exec: kind.Exec{Command: "fake:exit 0"}}})
	out, err := r.client.Delete(t.Context(), box, true, options())
	r.must(err)
	r.wait(out.Jobs[0].ID)
	r.sql(`UPDATE schedules SET action = replace(action::text, 'python', 'gone')::json WHERE id = $1`, template)
	r.due(time.Second, id, template)
	r.scheduler()
	for id, why := range map[string]string{id: "sandbox " + box + " is deleted", template: `unknown template "gone"`} {
		x := r.wantRuns(id, models.RunFailed)[0]
		r.eventually("it is disabled", func() bool { return r.readSchedule(id).State == models.ScheduleDisabled })
		s := r.readSchedule(id)
		if !strings.Contains(*s.Reason, why) || *x.Reason != *s.Reason || x.JobID != nil || s.NextDue != nil || s.ConsecutiveFailures != 1 {
			t.Errorf("the schedule is %+v, with the reason %s, its run %+v", s, *s.Reason, x)
		}
		list, err := r.store.Events(t.Context(), tenant, models.EventFilter{Schedule: id, Limit: 10})
		r.must(err)
		if len(list) != 2 || list[0].Event != "schedule.disabled" || *list[0].Reason != *s.Reason || list[1].Event != "schedule.created" {
			t.Errorf("the events are %+v", list)
		}
	}
	_, err = r.client.ResumeSchedule(t.Context(), tenant, id, "test")
	if ended := (*models.EndedError)(nil); !errors.As(err, &ended) {
		t.Errorf("resumed without its sandbox: %v", err)
	}
}

func TestALimitDelaysARun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.schedule(jobs.Action{Create: &jobs.CreateSandbox{}})
	r.quota(0)
	r.due(time.Second, id)
	r.scheduler()
	r.eventually("it is tried again later", func() bool {
		x := r.runs(id)
		return len(x) == 1 && x[0].State == models.RunPending && x[0].Attempts > 0 && strings.Contains(*x[0].Reason, "max_sandboxes")
	})
	r.quota(10)
	r.sql("UPDATE schedule_runs SET retry_at = now()")
	x := r.wantRuns(id, models.RunSubmitted)[0]
	if x.Reason != nil || x.JobID == nil {
		t.Errorf("at last the run is %+v", x)
	}
	r.quota(0)
	r.sql("UPDATE jobs SET state = 'failed', finished_at = now()") // no worker is there
	r.wantRuns(id, "failed")
	r.due(0, id)
	r.eventually("it is given up", func() bool {
		r.sql("UPDATE schedule_runs SET retry_at = now() WHERE state = 'pending'")
		x := r.runs(id)
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
	r.sql(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$`)
	r.sql(`CREATE TRIGGER refuse BEFORE INSERT ON sandboxes FOR EACH ROW WHEN (NEW.labels->>'poison' = 'yes') EXECUTE FUNCTION refuse()`)
	poison := r.schedule(jobs.Action{Create: &jobs.CreateSandbox{Labels: map[string]string{"poison": "yes"}}})
	sound := r.schedule(jobs.Action{Create: &jobs.CreateSandbox{}})
	r.due(time.Second, poison, sound)
	r.scheduler()
	for tries := 1; tries <= 3; tries++ {
		r.eventually("it is tried again", func() bool {
			x := r.runs(poison)
			return len(x) == 1 && x[0].State == models.RunPending && x[0].Attempts == tries && strings.Contains(*x[0].Reason, "internal error")
		})
		r.sql("UPDATE schedule_runs SET retry_at = now() WHERE state = 'pending' AND retry_at > now() + $1 * interval '1 s' / 2", 1<<(tries-1))
	}
	r.wantRuns(sound, models.RunSubmitted)
}

// fireSchedulesAtOnce makes that many schedules due before there is a scheduler, and says how long it takes until each has
// its job.
func (r *rig) fireSchedulesAtOnce(many int) time.Duration {
	r.t.Helper()
	r.quota(2 * many)
	r.sql("UPDATE tenants SET max_schedules = $1", many)
	for range many {
		r.schedule(jobs.Action{Run: &jobs.OneShot{Exec: kind.Exec{Command: "fake:exit 0"}}})
	}
	r.sql("UPDATE schedules SET next_due = now()")
	if st, err := r.store.Stats(r.t.Context()); err != nil || st.ScheduleLag <= 0 {
		r.t.Errorf("nobody fires, and the lag is %v, %v", st.ScheduleLag, err)
	}
	began := time.Now()
	r.scheduler()
	r.eventually("all are fired", func() bool {
		n, err := r.store.CountSandboxes(r.t.Context(), tenant, models.SandboxFilter{})
		r.must(err)
		return n == many
	})
	return time.Since(began)
}

func TestSchedulesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	t.Logf("50 schedules were fired within %v", r.fireSchedulesAtOnce(50).Round(time.Millisecond))
	if st, err := r.store.Stats(t.Context()); err != nil || st.ScheduleLag != 0 {
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
	r.worker(4)
	box := r.readied()
	plain, err := r.store.CreateKey(t.Context(), tenant, "old", []string{models.ScopeSandboxes})
	r.must(err)
	key, err := r.store.Authenticate(t.Context(), plain)
	r.must(err)
	id := r.schedule(execIn(box, "fake:exit 0"), func(s *models.Schedule) { s.CreatedBy = key.ID })
	r.sql("UPDATE api_keys SET revoked_at = now() WHERE id = $1", key.ID)
	if _, err := r.store.Authenticate(t.Context(), plain); !errors.Is(err, models.ErrRevoked) {
		t.Fatalf("the key is not revoked: %v", err)
	}
	r.due(time.Second, id)
	r.scheduler()
	r.wantRuns(id, "succeeded")
	list, err := r.store.Schedules(t.Context(), tenant, models.ScheduleFilter{CreatedBy: key.ID, Limit: 2})
	r.must(err)
	if others, err := r.store.Schedules(t.Context(), tenant, models.ScheduleFilter{CreatedBy: "key_other", Limit: 2}); len(list) != 1 || len(others) != 0 {
		t.Errorf("%d schedules of the key and %d of another, %v", len(list), len(others), err)
	}
	if s := r.readSchedule(id); s.State != models.ScheduleActive || s.CreatedBy != key.ID {
		t.Errorf("the schedule is %+v", s)
	}
}
