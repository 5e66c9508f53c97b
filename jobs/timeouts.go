package jobs

import (
	"context"

	"sandyard/models"
)

// fireTimeouts deletes or pauses sandboxes whose time is up. A pause that has failed is tried again after a rest.
func (s *Scheduler) fireTimeouts(ctx context.Context) error {
	return s.fire(ctx, s.store.DueTimeouts, "timeout", func(x models.Situation) bool {
		b := x.Sandbox
		due := !x.Now.Before(b.ExpiresAt) && b.EndedAt == nil && b.State != models.SandboxDeleting
		if !due || !pauses(b, "timeout") {
			return due && b.State != models.SandboxPaused
		}
		return b.State == models.SandboxRunning && b.Desired == models.DesiredRunning && !b.PauseRests(x.Now)
	})
}
