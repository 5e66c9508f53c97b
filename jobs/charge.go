package jobs

import (
	"context"
	"errors"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/models/pg"
)

// charged says whether a submission counts against the job rate: what makes room does not, nor what the platform does
// by itself.
func charged(sub models.Submission) bool {
	j := sub.Jobs[sub.PrimaryJob]
	return !sub.NoActivity && sub.Jobs[0].Kind != models.KindDelete && j.Actor != kind.SchedulerActor
}

// submitCharged submits within the job rate. What was accepted before is not charged again.
func (c *Client) submitCharged(ctx context.Context, sub models.Submission) (models.Submitted, error) {
	var buckets []models.Bucket
	if charged(sub) {
		var err error
		if buckets, err = c.store.Buckets(ctx, sub.TenantID, sub.User); err != nil {
			return models.Submitted{}, err
		}
	}
	if err := c.queue.Charge(ctx, buckets); err != nil {
		if !c.store.Accepted(ctx, sub.TenantID, sub.IdempotencyKey) {
			return models.Submitted{}, err
		}
		buckets = nil
	}
	out, err := c.store.Submit(ctx, sub)
	if err != nil && !errors.Is(err, pg.ErrUncertain) || out.Replayed || out.Existing {
		c.queue.GiveBack(ctx, buckets)
	}
	return out, err
}
