package jobs

import (
	"context"
	"errors"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// resumeAttempts is how often a job looks whether the sandbox that it has found paused goes on by now.
	resumeAttempts = 10
	resumeLook     = time.Second // between two looks, at most
)

// Resume asks for the resume of a sandbox that is paused and has auto_resume. Of many who ask at once one submits the
// job; for the others, and where there is nothing to resume, it does nothing.
func (c *Client) Resume(ctx context.Context, tenant, sandbox string) error {
	return resume(ctx, c.store, c.queue, tenant, sandbox)
}

// resume submits the job outside the order of the sandbox's jobs: what is frozen in it may be one of them.
func resume(ctx context.Context, store *models.Store, queue *queue.Queue, tenant, sandbox string) error {
	j, err := newJob(sandbox, &kind.Resume{}, Options{TenantID: tenant, Actor: "auto_resume", Parallel: true})
	if err != nil {
		return err
	}
	out, err := store.Submit(ctx, models.Submission{
		TenantID: tenant, SandboxID: sandbox, Jobs: []models.Job{j}, Only: mayResume,
	})
	if err != nil && !errors.Is(err, models.ErrNotDue) {
		return err
	}
	queue.Send(ctx, out.Dispatch)
	return nil
}

// mayResume says no while a resume that was asked for may still come.
func mayResume(x models.Situation) bool {
	b := x.Sandbox
	return b.AutoResume && b.State == models.SandboxPaused && (b.Desired == models.DesiredPaused || !x.Active)
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

// awaitsResume says whether the attempt failed only because its sandbox is paused, and has asked for its resume. What a
// pause has frozen asks for none.
func (a *attempt) awaitsResume(ctx context.Context, cause error) bool {
	if !errors.Is(cause, providers.ErrPaused) || a.mayBeFrozen(cause) || a.job.Tries() >= resumeAttempts {
		return false
	}
	box, err := a.w.store.Sandbox(ctx, a.job.TenantID, a.job.SandboxID)
	if isOurs(err) {
		return true // nobody knows whether it resumes by itself: the next attempt asks again
	}
	if err != nil || !box.AutoResume || box.Ended() {
		return false
	}
	a.resume(ctx)
	return true
}

// resume asks for it where the sandbox has auto_resume.
func (a *attempt) resume(ctx context.Context) {
	if err := resume(ctx, a.w.store, a.w.queue, a.job.TenantID, a.job.SandboxID); err != nil {
		a.log.WarnContext(ctx, "resume not submitted", "error", err)
	}
}
