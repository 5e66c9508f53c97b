package jobs

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// dueBatch bounds how many sandboxes one tick ends; they are submitted together and share commits.
const dueBatch = 1000

// fire submits the end of every sandbox that find returns and for which still holds when its row is locked.
func (s *Scheduler) fire(ctx context.Context, find func(context.Context, int) ([]models.Sandbox, error), reason string,
	still func(models.Situation) bool,
) error {
	due, err := find(ctx, dueBatch)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(128)
	for _, box := range due {
		all.Go(func() error {
			err := s.client.end(ctx, box, reason, still)
			if errors.Is(err, models.ErrNotDue) {
				return nil
			}
			s.log.InfoContext(ctx, "sandbox timeout fired", "sandbox_id", box.ID, "reason", reason, "error", err)
			return err
		})
	}
	return all.Wait()
}

// end submits the job that a due sandbox calls for. It stands outside the order of the sandbox's jobs: time waits for
// none of them.
func (c *Client) end(ctx context.Context, box models.Sandbox, reason string, still func(models.Situation) bool) error {
	o := Options{TenantID: box.TenantID, Actor: kind.SchedulerActor, Parallel: true}
	pause := pauses(box, reason)
	sub := models.Submission{
		TenantID:  box.TenantID,
		SandboxID: box.ID,
		Passive:   true,
		Only: func(x models.Situation) bool {
			return still(x) && pauses(x.Sandbox, reason) == pause // it may have been made meanwhile
		},
	}
	var args kind.Args = &kind.Pause{Reason: reason}
	if !pause {
		args = &kind.Delete{Reason: reason}
		sub.End = &models.End{Reason: reason, Actor: o.Actor}
	}
	j, err := newJob(box.ID, args, o)
	if err != nil {
		return err
	}
	sub.Jobs = []models.Job{j}
	_, err = c.commit(ctx, sub)
	return err
}

// pauses says whether a sandbox that is due for the reason is to be paused. One that is still to be made cannot be.
func pauses(b models.Sandbox, reason string) bool {
	return reason == "timeout" && b.OnTimeout == "pause" && b.State != models.SandboxCreating
}
