package jobs

import (
	"context"

	"sandyard/jobs/autoresume"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// Resume asks for the resume of a sandbox that is paused and has auto_resume. Of many who ask at once one submits the
// job; for the others, and where there is nothing to resume, it does nothing.
func (c *Client) Resume(ctx context.Context, tenantID, sandboxID string) error {
	return autoresume.Submit(ctx, c.store, c.queue, tenantID, sandboxID)
}

// resumeFor resumes the sandbox that a job was submitted to. Where that fails, the job itself asks again.
func (c *Client) resumeFor(ctx context.Context, box models.Sandbox, args kind.Args) {
	if !box.AutoResume || box.Desired != models.DesiredPaused || kind.Of(args).KeepsPaused {
		return
	}
	if err := c.Resume(ctx, box.TenantID, box.ID); err != nil {
		c.log.WarnContext(ctx, "resume not submitted, the job submits it when it runs", "sandbox_id", box.ID, "error", err)
	}
}
