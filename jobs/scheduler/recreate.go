package scheduler

import (
	"context"
	"errors"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/models/pg"
)

// recreationRest is how long a lost sandbox is left alone in whose place none could be made.
const recreationRest = 10 * time.Second

// recreate makes sandboxes in the place of lost ones whose users want that. A tenant at its limit has no turn for a
// while, so that it keeps nobody behind it from theirs.
func (s *Scheduler) recreate(ctx context.Context) error {
	lost, err := s.store.DueRecreations(ctx, dueBatch)
	if err != nil {
		return err
	}
	full := map[string]bool{}
	return loop.Each(ctx, s.store.Ready, lost, func(box models.Sandbox) error {
		if full[box.TenantID] {
			return nil
		}
		made, err := s.client.Replace(ctx, box)
		switch {
		case err == nil:
			s.log.WarnContext(ctx, "lost sandbox recreated", "sandbox_id", box.ID, "by", made.Sandbox.ID)
		case errors.As(err, new(*models.LimitError)):
			full[box.TenantID] = true
			s.log.WarnContext(ctx, "lost sandboxes of a tenant not recreated for now", "tenant_id", box.TenantID, "reason", err)
			return s.store.RestRecreations(ctx, box.TenantID, recreationRest, err.Error())
		case !errors.Is(err, models.ErrNotDue) && !pg.IsUnavailable(err) && ctx.Err() == nil:
			err = errors.Join(err, s.store.RestRecreation(ctx, box.ID, recreationRest, err.Error()))
		}
		return loop.OfSandbox(box.ID, err)
	})
}
