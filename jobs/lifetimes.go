package jobs

import (
	"context"

	"sandyard/models"
)

// endLifetimes deletes sandboxes that have lived as long as they may, whatever they do.
func (s *Scheduler) endLifetimes(ctx context.Context) error {
	return s.fire(ctx, s.store.DueLifetimes, "max_lifetime", func(x models.Situation) bool {
		b := x.Sandbox
		end := b.DiesAt()
		return end != nil && !x.Now.Before(*end) && b.EndedAt == nil && b.State != models.SandboxDeleting
	})
}
