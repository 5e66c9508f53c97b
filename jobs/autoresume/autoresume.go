// Package autoresume asks for the resume of paused sandboxes that somebody uses.
package autoresume

import (
	"context"
	"errors"

	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/models"
)

// Actor is who resumes in the name of a use.
const Actor = "auto_resume"

// Submit asks for the resume of a sandbox that is paused and has auto_resume. Of many who ask at once one submits the
// job; for the others, and where there is nothing to resume, it does nothing. The job stands outside the order of the
// sandbox's jobs: what is frozen in it may be one of them.
func Submit(ctx context.Context, store *models.Store, queue *queue.Queue, tenantID, sandboxID string) error {
	j, err := kind.NewJob(tenantID, sandboxID, &kind.Resume{})
	if err != nil {
		return err
	}
	j.Actor, j.Parallel = Actor, true
	out, err := store.Submit(ctx, models.Submission{
		TenantID: tenantID, SandboxID: sandboxID, Jobs: []models.Job{j}, Guard: mayResume,
	})
	if err != nil && !errors.Is(err, models.ErrNotDue) {
		return err
	}
	queue.Send(ctx, out.Dispatch)
	return nil
}

// mayResume says no while a resume that was asked for may still come.
func mayResume(x models.SandboxSnapshot) bool {
	b := x.Sandbox
	return b.AutoResume && b.State == models.SandboxPaused && (b.Desired == models.DesiredPaused || !x.Active)
}
