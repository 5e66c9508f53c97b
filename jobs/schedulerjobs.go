package jobs

import (
	"context"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// End submits the job that a due sandbox calls for. It stands outside the order of the sandbox's jobs: time waits for
// none of them.
func (c *Client) End(
	ctx context.Context,
	box models.Sandbox,
	reason string,
	still func(models.SandboxSnapshot) bool,
) error {
	o := Options{TenantID: box.TenantID, Actor: kind.SchedulerActor, Parallel: true}
	pause := Pauses(box, reason)
	sub := models.Submission{
		TenantID:   box.TenantID,
		SandboxID:  box.ID,
		NoActivity: true,
		Guard: func(x models.SandboxSnapshot) bool {
			return still(x) && Pauses(x.Sandbox, reason) == pause // it may have been made meanwhile
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

// Pauses says whether a sandbox that is due for the reason is to be paused. One that is still to be made cannot be.
func Pauses(b models.Sandbox, reason string) bool {
	return reason == "timeout" && b.OnTimeout == "pause" && b.State != models.SandboxCreating
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
