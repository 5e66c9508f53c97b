package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/models/pg"
)

// endedRuns bounds one transaction.
const endedRuns = 1000

// settleRuns writes down in the history of schedules how their jobs have ended.
func (s *Scheduler) settleRuns(ctx context.Context) error {
	_, err := loop.InParts(ctx, endedRuns, s.store.SettleRuns)
	return err
}

const (
	// pendingRuns bounds one tick's work; runs are submitted together and share commits.
	pendingRuns = 1000
	// runAttempts is how often a run is submitted that a limit keeps from it: for about a minute.
	runAttempts = 6
	// longestRunPause is the most time between two submissions of a run that fails for another reason.
	longestRunPause = time.Minute
)

// submitRuns submits the runs of schedules whose turn it is.
func (s *Scheduler) submitRuns(ctx context.Context) error {
	if any, err := s.store.AnyPendingRun(ctx); err != nil || !any {
		return err
	}
	inTheWay, err := s.store.ReplaceRuns(ctx, pendingRuns)
	if err != nil {
		return err
	}
	cancelled := loop.Each(ctx, s.store.Ready, inTheWay, s.makeWay(ctx))
	runs, err := s.store.PendingRuns(ctx, pendingRuns)
	if err != nil {
		return errors.Join(cancelled, err)
	}
	var all errgroup.Group
	all.SetLimit(64)
	for _, r := range runs {
		all.Go(func() error { return s.submitRun(ctx, r) })
	}
	return errors.Join(cancelled, all.Wait())
}

// makeWay cancels a job that is in the way of a run that is to replace it.
func (s *Scheduler) makeWay(ctx context.Context) func(models.JobToCancel) error {
	return func(j models.JobToCancel) error {
		_, err := s.client.Cancel(ctx, j.TenantID, j.JobID, kind.SchedulerActor)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return fmt.Errorf("cancel job %s: %w", j.JobID, err)
		}
		return nil
	}
}

func (s *Scheduler) submitRun(ctx context.Context, r models.ScheduleRun) error {
	c, err := s.store.Schedule(ctx, r.TenantID, r.ScheduleID)
	if errors.Is(err, models.ErrNotFound) {
		return nil // deleted meanwhile, with its runs
	}
	if err != nil {
		return err
	}
	out, err := s.client.Perform(ctx, c, r, jobs.Options{Actor: scheduleActor + c.ID})
	switch {
	case err == nil && out.Existing:
		return s.store.EndRun(ctx, r.ID, models.RunSkipped, "a sandbox with this key is already live")
	case err == nil:
		s.log.InfoContext(ctx, "schedule fired", "schedule_id", c.ID, "due_at", r.DueAt, "sandbox_id", out.Sandbox.ID)
		return nil
	case errors.Is(err, models.ErrNotDue): // another scheduler has submitted it, or it was skipped
		return nil
	}
	return s.refused(ctx, c, r, err)
}

// refused tells what can never succeed from what may later.
func (s *Scheduler) refused(ctx context.Context, c models.Schedule, r models.ScheduleRun, cause error) error {
	var (
		ended *models.EndedError
		wrong *kind.InvalidError
		limit *models.LimitError
	)
	switch {
	case errors.Is(cause, models.ErrNotFound), errors.As(cause, &ended), errors.As(cause, &wrong):
		why := cause.Error()
		if errors.Is(cause, models.ErrNotFound) {
			why = "its sandbox is gone"
		}
		s.log.WarnContext(ctx, "schedule disabled", "schedule_id", c.ID, "reason", why)
		if err := s.store.EndRun(ctx, r.ID, models.RunFailed, why); err != nil {
			return err
		}
		return s.store.DisableSchedule(ctx, c.ID, why)
	case errors.As(cause, &limit):
		if r.Attempts+1 >= runAttempts {
			return s.store.EndRun(ctx, r.ID, models.RunFailed, cause.Error())
		}
		return s.store.DelayRun(ctx, r.ID, cause.Error(), time.Second<<r.Attempts)
	case pg.IsUnavailable(cause):
		return cause
	}
	pause := min(time.Second<<min(r.Attempts, 10), longestRunPause)
	return errors.Join(
		cause,
		s.store.DelayRun(ctx, r.ID, "it was not submitted because of an internal error; the scheduler tries again", pause),
	)
}
