package scheduler

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs"
	"sandyard/models"
)

// resumeDeletes submits a new delete for sandboxes that are to go while the one before has given up.
func (s *Scheduler) resumeDeletes(ctx context.Context) error {
	return s.fire(ctx, s.store.StuckDeletes, "deleted", func(x models.SandboxSnapshot) bool {
		return x.Sandbox.EndedAt == nil && !x.Active
	})
}

// dueBatch bounds how many sandboxes one tick ends; they are submitted together and share commits.
const dueBatch = 1000

// fire submits the end of every sandbox that find returns and for which still holds when its row is locked.
func (s *Scheduler) fire(ctx context.Context, find func(context.Context, int) ([]models.Sandbox, error), reason string,
	still func(models.SandboxSnapshot) bool,
) error {
	due, err := find(ctx, dueBatch)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(128)
	for _, box := range due {
		all.Go(func() error {
			err := s.client.End(ctx, box, reason, still)
			if errors.Is(err, models.ErrNotDue) {
				return nil
			}
			s.log.InfoContext(ctx, "sandbox timeout fired", "sandbox_id", box.ID, "reason", reason, "error", err)
			return err
		})
	}
	return all.Wait()
}

// reapIdle deletes sandboxes that no job has used for their idle timeout.
func (s *Scheduler) reapIdle(ctx context.Context) error {
	at, counts := s.silence()
	if !counts {
		return nil
	}
	due := func(ctx context.Context, limit int) ([]models.Sandbox, error) { return s.store.DueIdle(ctx, at, limit) }
	return s.fire(ctx, due, "idle", func(x models.SandboxSnapshot) bool {
		idle := at.Sub(x.Sandbox.LastActiveAt).Milliseconds() >= x.Sandbox.IdleTimeoutMS
		return idle && !x.Active && x.Sandbox.Desired == models.DesiredRunning && x.Sandbox.State == models.SandboxRunning
	})
}

// endLifetimes deletes sandboxes that have lived as long as they may, whatever they do.
func (s *Scheduler) endLifetimes(ctx context.Context) error {
	return s.fire(ctx, s.store.DueLifetimes, "max_lifetime", func(x models.SandboxSnapshot) bool {
		b := x.Sandbox
		end := b.DiesAt()
		return end != nil && !x.Now.Before(*end) && b.EndedAt == nil && b.State != models.SandboxDeleting
	})
}

// reapPaused deletes sandboxes that have been paused for longer than they may.
func (s *Scheduler) reapPaused(ctx context.Context) error {
	return s.fire(ctx, s.store.DuePaused, "paused_timeout", func(x models.SandboxSnapshot) bool {
		b := x.Sandbox
		return b.State == models.SandboxPaused && b.Desired == models.DesiredPaused && b.PausedAt != nil &&
			x.Now.Sub(*b.PausedAt).Milliseconds() >= b.PausedTimeoutMS
	})
}

// fireTimeouts deletes or pauses sandboxes whose time is up. A pause that has failed is tried again after a rest.
func (s *Scheduler) fireTimeouts(ctx context.Context) error {
	return s.fire(ctx, s.store.DueTimeouts, "timeout", func(x models.SandboxSnapshot) bool {
		b := x.Sandbox
		due := !x.Now.Before(b.ExpiresAt) && b.EndedAt == nil && b.State != models.SandboxDeleting
		if !due || !jobs.Pauses(b, "timeout") {
			return due && b.State != models.SandboxPaused
		}
		return b.State == models.SandboxRunning && b.Desired == models.DesiredRunning && !b.PauseRests(x.Now)
	})
}
