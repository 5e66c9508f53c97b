package jobs

import (
	"context"

	"sandyard/models"
)

// reapPaused deletes sandboxes that have been paused for longer than they may.
func (s *Scheduler) reapPaused(ctx context.Context) error {
	return s.fire(ctx, s.store.DuePaused, "paused_timeout", func(x models.Situation) bool {
		b := x.Sandbox
		return b.State == models.SandboxPaused && b.Desired == models.DesiredPaused && b.PausedAt != nil &&
			x.Now.Sub(*b.PausedAt).Milliseconds() >= b.PausedTimeoutMS
	})
}
