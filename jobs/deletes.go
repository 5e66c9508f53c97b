package jobs

import (
	"context"

	"sandyard/models"
)

// resumeDeletes submits a new delete for sandboxes that are to go while the one before has given up.
func (s *Scheduler) resumeDeletes(ctx context.Context) error {
	return s.fire(ctx, s.store.StuckDeletes, "deleted", func(x models.Situation) bool {
		return x.Sandbox.EndedAt == nil && !x.Active
	})
}
