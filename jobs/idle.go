package jobs

import (
	"context"

	"sandyard/models"
)

// reapIdle deletes sandboxes that no job has used for their idle timeout.
func (s *Scheduler) reapIdle(ctx context.Context) error {
	return s.fire(ctx, s.store.DueIdle, "idle", func(x models.Situation) bool {
		idle := x.Now.Sub(x.Sandbox.LastActiveAt).Milliseconds() >= x.Sandbox.IdleTimeoutMS
		return idle && !x.Active && x.Sandbox.Desired == models.DesiredRunning && x.Sandbox.State == models.SandboxRunning
	})
}
