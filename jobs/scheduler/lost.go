package scheduler

import (
	"context"
	"errors"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
)

// endLost ends sandboxes that no worker will ever come back to: their engine has lost all of them for too long. Those
// that are only to be made go to another engine at once.
func (s *Scheduler) endLost(ctx context.Context) error {
	at, counts := s.silence()
	if s.tellPatience(ctx, counts); !counts {
		return nil
	}
	return errors.Join(s.releaseDeserted(ctx, at), s.loseDeserted(ctx, at), s.endStranded(ctx))
}

func (s *Scheduler) releaseDeserted(ctx context.Context, at time.Time) error {
	found, err := s.store.Deserted(ctx, at, 0, dueBatch, models.SandboxCreating)
	if err != nil {
		return err
	}
	return loop.Each(ctx, s.store.Ready, found, func(box models.Sandbox) error {
		tasks, err := s.store.Release(ctx, box.ID, at)
		if err != nil {
			return loop.OfSandbox(box.ID, err)
		}
		s.log.WarnContext(ctx, "sandbox create moved to another engine", "sandbox_id", box.ID, "node", *box.NodeID)
		s.queue.Send(ctx, tasks)
		return nil
	})
}

func (s *Scheduler) loseDeserted(ctx context.Context, at time.Time) error {
	found, err := s.store.Deserted(
		ctx,
		at,
		s.lostAfter,
		dueBatch,
		models.SandboxRunning,
		models.SandboxPaused,
		models.SandboxDeleting,
	)
	if err != nil {
		return err
	}
	return loop.Each(ctx, s.store.Ready, found, func(box models.Sandbox) error {
		f, err := s.store.LoseDeserted(ctx, box.ID, at, s.lostAfter)
		if err != nil {
			return loop.OfSandbox(box.ID, err)
		}
		s.log.WarnContext(ctx, "sandbox lost with its engine", "sandbox_id", box.ID, "node", *box.NodeID)
		s.queue.Follow(ctx, f)
		return nil
	})
}

func (s *Scheduler) endStranded(ctx context.Context) error {
	found, err := s.store.Stranded(ctx, dueBatch)
	if err != nil {
		return err
	}
	return loop.Each(ctx, s.store.Ready, found, func(id string) error {
		f, err := s.store.EndStranded(ctx, id)
		s.queue.Follow(ctx, f)
		return loop.OfSandbox(id, err)
	})
}
