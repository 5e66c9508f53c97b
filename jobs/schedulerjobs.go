package jobs

import (
	"context"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// End submits the job that a due sandbox calls for. It stands outside the order of the sandbox's jobs: time waits for
// none of them.
func (c *Client) End(ctx context.Context, box models.Sandbox, due *models.DueRule) error {
	o := Options{TenantID: box.TenantID, Actor: kind.SchedulerActor, Parallel: true}
	pause := pauses(box, due)
	sub := models.Submission{
		TenantID:   box.TenantID,
		SandboxID:  box.ID,
		NoActivity: true,
		Due:        due,
		Guard: func(x models.SandboxSnapshot) bool {
			return pauses(x.Sandbox, due) == pause // it may have been made meanwhile
		},
	}
	var args kind.Args = &kind.Pause{Reason: due.Reason}
	if !pause {
		args = &kind.Delete{Reason: due.Reason}
		sub.End = &models.End{Reason: due.Reason, Actor: o.Actor}
	}
	j, err := newJob(box.ID, args, o)
	if err != nil {
		return err
	}
	sub.Jobs = []models.Job{j}
	_, err = c.commit(ctx, sub)
	return err
}

// pauses says whether a sandbox that is due is to be paused. One that is still to be made cannot be.
func pauses(b models.Sandbox, due *models.DueRule) bool {
	return due.Reason == "timeout" && b.OnTimeout == "pause" && b.State != models.SandboxCreating
}

// Replace submits a sandbox like the lost one. What was in that is gone.
func (c *Client) Replace(ctx context.Context, lost models.Sandbox) (models.Submitted, error) {
	spec, err := kind.SpecOf(lost)
	if err != nil {
		return models.Submitted{}, err
	}
	ready := kind.ReadyTimeout(models.Definition{StartCommand: spec.Start, Ready: spec.Ready})
	ready += spec.SetupTime()
	if spec.Build != "" {
		ready += defaultBuildTimeout
	}
	return c.submit(
		ctx,
		c.newSandbox(c.catalog.rebound(lost.Replacement())),
		[]kind.Args{&kind.Create{ReadySeconds: ready.Seconds()}},
		Options{TenantID: lost.TenantID, Actor: kind.SchedulerActor},
	)
}
