package scheduler

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"sandyard/models"
)

// dueBatch bounds how many sandboxes one tick ends; they are submitted together and share commits.
const dueBatch = 1000

// fireTimeouts deletes or pauses sandboxes whose time is up.
func (s *Scheduler) fireTimeouts(ctx context.Context) error {
	return s.endDue(ctx, models.DueTimeout())
}

// endLifetimes deletes sandboxes that have lived as long as they may.
func (s *Scheduler) endLifetimes(ctx context.Context) error {
	return s.endDue(ctx, models.DueLifetime())
}

// reapPaused deletes sandboxes that have been paused for longer than they may.
func (s *Scheduler) reapPaused(ctx context.Context) error { return s.endDue(ctx, models.DuePaused()) }

// resumeDeletes submits a new delete for sandboxes that are to go while the one before has given up.
func (s *Scheduler) resumeDeletes(ctx context.Context) error {
	return s.endDue(ctx, models.StuckDelete())
}

// reapIdle deletes sandboxes that no job has used for their idle timeout.
func (s *Scheduler) reapIdle(ctx context.Context) error {
	at, counts := s.silence()
	if !counts {
		return nil
	}
	return s.endDue(ctx, models.DueIdle(at))
}

// endDue submits the end of every sandbox for which a rule holds.
func (s *Scheduler) endDue(ctx context.Context, rule *models.DueRule) error {
	due, err := s.store.Due(ctx, rule, dueBatch)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(128)
	for _, box := range due {
		all.Go(func() error {
			err := s.client.End(ctx, box, rule)
			if errors.Is(err, models.ErrNotDue) {
				return nil
			}
			s.log.InfoContext(ctx, "sandbox timeout fired", "sandbox_id", box.ID, "reason", rule.Reason, "error", err)
			return err
		})
	}
	return all.Wait()
}
