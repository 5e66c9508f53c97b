package jobs

import (
	"context"
	"errors"

	"sandyard/models"
)

// recreate makes sandboxes in the place of lost ones whose users want that.
func (s *Scheduler) recreate(ctx context.Context) error {
	lost, err := s.store.DueRecreations(ctx, dueBatch)
	if err != nil {
		return err
	}
	return each(ctx, s.store.Ready, lost, func(box models.Sandbox) error {
		made, err := s.client.replace(ctx, box)
		if errors.As(err, new(*models.LimitError)) { // one beyond its tenant's limit is tried in silence
			return nil
		}
		if err == nil {
			s.log.WarnContext(ctx, "lost sandbox is made again", "sandbox_id", box.ID, "by", made.Sandbox.ID)
		}
		return ofSandbox(box.ID, err)
	})
}

// replace submits a sandbox like the lost one. What was in that is gone.
func (c *Client) replace(ctx context.Context, lost models.Sandbox) (models.Submitted, error) {
	spec, err := specOf(lost)
	if err != nil {
		return models.Submitted{}, err
	}
	ready := patience(models.Definition{StartCommand: spec.Start, Ready: spec.Ready})
	if spec.Build != "" {
		ready += defaultBuildTimeout
	}
	return c.submit(ctx, c.newSandbox(lost.Replacement()), []Args{&Create{ReadySeconds: ready.Seconds()}},
		Options{TenantID: lost.TenantID, Actor: "scheduler"})
}
