package jobs

import (
	"context"

	"sandyard/models"
)

// reapIdle deletes sandboxes that no job has used for their idle timeout.
func (s *Scheduler) reapIdle(ctx context.Context) error {
	at, counts := s.silence()
	if !counts {
		return nil
	}
	due := func(ctx context.Context, limit int) ([]models.Sandbox, error) { return s.store.DueIdle(ctx, at, limit) }
	return s.fire(ctx, due, "idle", func(x models.Situation) bool {
		idle := at.Sub(x.Sandbox.LastActiveAt).Milliseconds() >= x.Sandbox.IdleTimeoutMS
		return idle && !x.Active && x.Sandbox.Desired == models.DesiredRunning && x.Sandbox.State == models.SandboxRunning
	})
}
