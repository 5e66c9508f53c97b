package jobs

import (
	"context"

	"sandyard/models"
)

// fireTimeouts deletes or pauses sandboxes whose time is up.
func (s *Scheduler) fireTimeouts(ctx context.Context) error {
	return s.fire(ctx, s.store.DueTimeouts, "timeout", func(x models.Situation) bool {
		due := !x.Now.Before(x.Sandbox.ExpiresAt) && x.Sandbox.EndedAt == nil && x.Sandbox.State != models.SandboxDeleting
		return due && (x.Sandbox.OnTimeout != "pause" || x.Sandbox.Desired == models.DesiredRunning)
	})
}
