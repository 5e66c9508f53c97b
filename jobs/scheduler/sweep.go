package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"sandyard/jobs/loop"
	"sandyard/models"
)

const (
	// sweepBatch bounds one tick's work.
	sweepBatch = 1000
	// unclaimed is how long a task may lie in Redis before the sweep asks whether Redis still has it.
	unclaimed    = 2 * time.Second
	epochSetting = "redis_epoch"
)

// recoverLeases takes jobs from dead workers.
func (s *Scheduler) recoverLeases(ctx context.Context) error {
	at, counts := s.briefSilence()
	if !counts {
		return nil
	}
	expired := func(ctx context.Context, limit int) ([]models.Job, error) {
		return s.store.ExpiredLeases(ctx, at, limit)
	}
	return s.endEach(ctx, "job recovered from a dead worker", expired, s.store.Recover)
}

// expireQueued ends jobs that are past their queue deadline.
func (s *Scheduler) expireQueued(ctx context.Context) error {
	return s.endEach(ctx, "job expired in the queue", s.store.PastDeadline, s.store.Expire)
}

func (s *Scheduler) endEach(ctx context.Context, what string, find func(context.Context, int) ([]models.Job, error),
	end func(context.Context, models.Job) (models.FinishEffects, error),
) error {
	found, err := find(ctx, sweepBatch)
	if err != nil {
		return err
	}
	return loop.Each(ctx, s.store.Ready, found, func(j models.Job) error {
		f, err := end(ctx, j)
		if err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
		s.log.WarnContext(ctx, what, "job_id", j.ID, "kind", j.Kind, "attempt", j.Attempt, "sandbox_id", j.SandboxID)
		s.queue.Follow(ctx, f)
		return nil
	})
}

// resendLost sends tasks again that Redis does not hold any more.
func (s *Scheduler) resendLost(ctx context.Context) error {
	return errors.Join(s.checkEpoch(ctx), s.resendMissing(ctx))
}

// checkEpoch notices that Redis has lost its data, by a key that only a loss can remove, and then sends everything anew
// at once.
func (s *Scheduler) checkEpoch(ctx context.Context) error {
	known, err := s.store.SettingOrSet(ctx, epochSetting, "none")
	if err != nil {
		return err
	}
	found, err := s.queue.Epoch(ctx)
	if err != nil {
		return err
	}
	if found == known {
		return nil
	}
	if err := s.store.UndispatchAll(ctx); err != nil {
		return err
	}
	if found == "" {
		found = uuid.NewString()
		if err := s.queue.SetEpoch(ctx, found); err != nil {
			return err
		}
	}
	s.log.WarnContext(ctx, "Redis is new or lost its data, all queued jobs are sent again")
	_, err = s.store.SwapSetting(ctx, epochSetting, known, found)
	return err
}

// resendMissing asks Redis for the next tasks of a round through all that it was given, for those which it holds stay
// where they are in the table: nobody's tasks hide another's.
func (s *Scheduler) resendMissing(ctx context.Context) error {
	sent, next, err := s.store.Dispatched(ctx, s.round, unclaimed, sweepBatch)
	if err != nil {
		return err
	}
	gone, active, err := s.queue.Missing(ctx, sent)
	if err != nil {
		return err
	}
	now := time.Now()
	gone = append(gone, s.handed.overdue(active, now)...)
	if next.Over() {
		s.handed.forget()
	}
	if len(gone) > 0 {
		s.log.WarnContext(ctx, "tasks missing in Redis sent again", "count", len(gone))
	}
	if err := s.store.Undispatch(ctx, gone); err != nil {
		return err
	}
	s.round = next
	return nil
}

// dispatchBacklog hands over jobs that became ready by time, or whose tasks are to be sent again.
func (s *Scheduler) dispatchBacklog(ctx context.Context) error {
	tenants, err := s.store.Backlog(ctx)
	if err != nil {
		return err
	}
	return loop.Each(ctx, s.store.Ready, tenants, func(tenantID string) error {
		tasks, err := s.store.DispatchReady(ctx, tenantID)
		if err != nil {
			return fmt.Errorf("jobs of tenant %s: %w", tenantID, err)
		}
		s.queue.Send(ctx, tasks)
		return nil
	})
}
