package jobs

import (
	"context"
	"errors"

	"sandyard/models"
)

// endLost ends sandboxes that no worker will ever come back to: their engine has lost all of them for too long. Those
// that are only to be made go to another engine at once.
func (s *Scheduler) endLost(ctx context.Context) error {
	return errors.Join(s.releaseDeserted(ctx), s.loseDeserted(ctx), s.endStranded(ctx))
}

func (s *Scheduler) releaseDeserted(ctx context.Context) error {
	found, err := s.store.Deserted(ctx, 0, dueBatch, models.SandboxCreating)
	if err != nil {
		return err
	}
	for _, box := range found {
		tasks, err := s.store.Release(ctx, box.ID)
		if errors.Is(err, models.ErrNotDue) {
			continue
		}
		if err != nil {
			return err
		}
		s.log.WarnContext(ctx, "sandbox is to be made on another engine", "sandbox_id", box.ID, "node", *box.NodeID)
		s.queue.send(ctx, tasks)
	}
	return nil
}

func (s *Scheduler) loseDeserted(ctx context.Context) error {
	found, err := s.store.Deserted(ctx, s.lostAfter, dueBatch, models.SandboxRunning, models.SandboxPaused, models.SandboxDeleting)
	if err != nil {
		return err
	}
	for _, box := range found {
		f, err := s.store.LoseDeserted(ctx, box.ID, s.lostAfter)
		if errors.Is(err, models.ErrNotDue) {
			continue
		}
		if err != nil {
			return err
		}
		s.log.WarnContext(ctx, "sandbox lost with its engine", "sandbox_id", box.ID, "node", *box.NodeID)
		s.queue.follow(ctx, f)
	}
	return nil
}

func (s *Scheduler) endStranded(ctx context.Context) error {
	found, err := s.store.Stranded(ctx, dueBatch)
	if err != nil {
		return err
	}
	for _, id := range found {
		f, err := s.store.EndStranded(ctx, id)
		if err != nil && !errors.Is(err, models.ErrNotDue) {
			return err
		}
		s.queue.follow(ctx, f)
	}
	return nil
}
