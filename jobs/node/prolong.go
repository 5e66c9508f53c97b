package node

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// Beyond is how much later than ours a provider's own clock ends a sandbox: ours decides between delete and pause.
	Beyond = 2 * time.Minute
	// nearEnd is the time before the end of a provider's clock at which it is set again though it was told: it may allow
	// less at once than a sandbox is to live.
	nearEnd = 5 * time.Minute
	// prolongs is how many sandboxes are prolonged at once.
	prolongs = 8
)

// prolong tells a provider that ends sandboxes by itself when they are to end, where that has changed since it was
// told: after a new timeout, a resume, or a call that was lost.
func (r *Reconciler) prolong(ctx context.Context, rows []models.Sandbox, found []providers.Instance) error {
	timer, ok := r.Provider.(providers.Timer)
	if !ok {
		return nil
	}
	there := make(map[string]providers.Instance, len(found))
	for _, i := range found {
		there[i.ID] = i
	}
	now, told := r.Store.Now(ctx), map[string]time.Time{}
	var all errgroup.Group
	all.SetLimit(prolongs)
	failed := make([]error, len(rows))
	for n, b := range rows {
		i, known := there[b.ID]
		if !known || b.State != models.SandboxRunning || i.State != providers.StateRunning || i.Until.IsZero() {
			continue
		}
		told[b.ID] = b.ExpiresAt
		left := b.ExpiresAt.Sub(now) + Beyond
		late := i.Until.Before(now.Add(left - Beyond/2))
		if !late || r.told[b.ID].Equal(b.ExpiresAt) && i.Until.After(now.Add(nearEnd)) {
			continue
		}
		all.Go(func() error {
			if err := timer.SetTimeout(ctx, b.ID, left); err != nil && !errors.Is(err, providers.ErrNotFound) {
				failed[n] = loop.OfSandbox(b.ID, err)
			}
			return nil
		})
	}
	_ = all.Wait()
	for n, b := range rows {
		if failed[n] != nil {
			delete(told, b.ID)
		}
	}
	r.told = told
	return errors.Join(failed...)
}
