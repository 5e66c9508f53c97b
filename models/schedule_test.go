package models_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/models"
)

// newSchedule adds one that has been due since a moment ago, and is due every second.
func newSchedule(t *testing.T, s *models.Store) models.Schedule {
	t.Helper()
	every := int64(1000)
	c, err := s.CreateSchedule(t.Context(), models.Schedule{
		TenantID: "default", State: models.ScheduleActive, TimeZone: "UTC", IntervalMS: &every, Overlap: models.OverlapQueue,
		Missed: models.MissedSkip, MaxCatchUp: 1, Kind: "run", Action: []byte(`{}`), Options: []byte(`{}`), CreatedBy: "test", ChangedBy: "test",
	}, func(c models.Schedule) (*time.Time, error) {
		ago := c.Anchor.Add(-time.Millisecond)
		return &ago, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// once is a plan with one run at the due time, and the next in an hour.
func once(d models.DueSchedule) models.Tick {
	next := d.Now.Add(time.Hour)
	return models.Tick{Last: *d.NextDue, Next: &next, Runs: []models.ScheduleRun{{
		ID: models.NewID("run_"), TenantID: d.TenantID, ScheduleID: d.ID, DueAt: *d.NextDue, State: models.RunPending, Ticks: 1, RetryAt: d.Now,
	}}}
}

func TestADueTimeIsClaimedOnce(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	const schedules, schedulers = 30, 8
	for range schedules {
		newSchedule(t, s)
	}
	var fired, submitted atomic.Int32
	var all errgroup.Group
	for range schedulers {
		all.Go(func() error {
			n, err := s.FireSchedules(t.Context(), 7, once)
			for fired.Add(int32(n)); n > 0 && err == nil; fired.Add(int32(n)) { //nolint:gosec // a few
				n, err = s.FireSchedules(t.Context(), 7, once)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n > 0; fired.Add(int32(n)) { //nolint:gosec // what was locked when the last one looked
		var err error
		if n, err = s.FireSchedules(t.Context(), 100, once); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := s.PendingRuns(t.Context(), 1000)
	if err != nil || len(runs) != schedules || fired.Load() != schedules {
		t.Fatalf("%d schedules fired, %d runs wait, %v", fired.Load(), len(runs), err)
	}
	for range schedulers {
		for _, r := range runs {
			all.Go(func() error {
				box := newSandbox()
				_, err := s.Submit(t.Context(), models.Submission{
					TenantID: "default", SandboxID: box.ID, New: box, Timeout: time.Minute, Jobs: []models.Job{newJob(models.KindCreate, box.ID)}, Run: &r,
				})
				if err == nil {
					submitted.Add(1)
				}
				if errors.Is(err, models.ErrNotDue) {
					return nil
				}
				return err
			})
		}
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	boxes, err := s.Sandboxes(t.Context(), "default", models.SandboxFilter{Limit: 1000})
	if err != nil || submitted.Load() != schedules || len(boxes) != schedules {
		t.Errorf("%d due times were submitted %d times and made %d sandboxes, %v", schedules, submitted.Load(), len(boxes), err)
	}
}

func TestARefusedSubmissionGivesItsRunBack(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	c := newSchedule(t, s)
	if _, err := s.FireSchedules(t.Context(), 10, once); err != nil {
		t.Fatal(err)
	}
	runs, err := s.PendingRuns(t.Context(), 10)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
	_, err = s.Submit(t.Context(), models.Submission{
		TenantID: "default", SandboxID: "sb0", Jobs: []models.Job{newJob("exec", "sb0")}, Run: &runs[0],
	})
	if !errors.Is(err, models.ErrNotFound) {
		t.Fatalf("a job for nothing: %v", err)
	}
	if again, err := s.PendingRuns(t.Context(), 10); err != nil || len(again) != 1 || again[0].JobID != nil {
		t.Errorf("after the refusal: %+v, %v", again, err)
	}
	_, err = s.Submit(t.Context(), models.Submission{
		TenantID: "default", SandboxID: "sb0", Jobs: []models.Job{newJob("exec", "sb0")},
		Run: &models.ScheduleRun{ID: models.NewID("run_"), ScheduleID: c.ID, Manual: true},
	})
	if list, _ := s.ScheduleRuns(t.Context(), "default", c.ID, "", 10); !errors.Is(err, models.ErrNotFound) || len(list) != 1 {
		t.Errorf("a run that was asked for and refused: %v, %+v", err, list)
	}
}

func TestADueTimeHasOneRow(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	c := newSchedule(t, s)
	first := *c.NextDue
	same := func(d models.DueSchedule) models.Tick { // as if the schedule had not moved on
		tick := once(d)
		tick.Runs[0].DueAt, tick.Next = first, &first
		return tick
	}
	for range 2 {
		if n, err := s.FireSchedules(t.Context(), 10, same); err != nil || n != 1 {
			t.Fatalf("%d fired, %v", n, err)
		}
	}
	if list, err := s.ScheduleRuns(t.Context(), "default", c.ID, "", 10); err != nil || len(list) != 1 {
		t.Errorf("one due time has the rows %+v, %v", list, err)
	}
}

func TestOnlyTheLastRunsAreKept(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	c := newSchedule(t, s)
	for i := range 5 {
		_, err := s.FireSchedules(t.Context(), 10, func(d models.DueSchedule) models.Tick {
			tick := once(d)
			tick.Next = &d.Now
			if i != 1 { // which still waits
				tick.Runs[0].State, tick.Runs[0].EndedAt = models.RunSkipped, &d.Now
			}
			return tick
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.PruneHistories(t.Context(), []string{c.ID}, 2, 1); n != 1 || err != nil {
		t.Fatalf("%d of one are forgotten: %v", n, err)
	}
	if n, err := s.PruneHistories(t.Context(), []string{c.ID}, 2, 10); n != 1 || err != nil {
		t.Fatalf("%d of the rest are forgotten: %v", n, err)
	}
	if list, err := s.ScheduleRuns(t.Context(), "default", c.ID, "", 10); err != nil || len(list) != 3 || list[2].State != models.RunPending {
		t.Errorf("kept: %+v, %v", list, err)
	}
}

// TestAnExitCodeKeepsNobodysRunsFromTheirEnds: what a job has as its result comes from a sandbox, and rows with such codes
// exist already.
func TestAnExitCodeKeepsNobodysRunsFromTheirEnds(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	for said, want := range map[string]int{"0": 0, "7": 7, "9999999999": 255, "1.5": 255, `"x"`: 255} {
		c := newSchedule(t, s)
		_, err := s.FireSchedules(t.Context(), 10, once)
		must(t, err)
		runs, err := s.ScheduleRuns(t.Context(), "default", c.ID, "", 10)
		must(t, err)
		box := newSandbox()
		out, err := s.Submit(t.Context(), models.Submission{
			TenantID: "default", SandboxID: box.ID, New: box, Timeout: time.Minute,
			Jobs: []models.Job{newJob(models.KindCreate, box.ID), newJob("code", box.ID)}, Run: &runs[0],
		})
		must(t, err)
		code := out.Jobs[1].ID
		exec(t, db, "UPDATE schedule_runs SET job_id = $1 WHERE id = $2", code, runs[0].ID)
		exec(t, db, "UPDATE jobs SET state = 'succeeded', finished_at = now(), result = $1 WHERE id = $2", `{"exit_code": `+said+`}`, code)
		if n, err := s.SettleRuns(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("with %s %d runs are settled, %v", said, n, err)
			continue
		}
		runs, err = s.ScheduleRuns(t.Context(), "default", c.ID, "", 10)
		must(t, err)
		if r := runs[0]; r.State != "succeeded" || r.ExitCode == nil || *r.ExitCode != want {
			t.Errorf("the run of %s is %+v, want exit code %d", said, r, want)
		}
	}
}
