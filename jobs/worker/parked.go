package worker

import (
	"context"
	"errors"
	"time"

	"sandyard/jobs/autoresume"
	"sandyard/models"
	"sandyard/providers"
)

// pausedMidRun says whether the attempt may have ended because the program that it or an earlier one has started, or
// was about to, stands still in a paused sandbox.
func (a *attempt) pausedMidRun(cause error) bool {
	return models.IsProgram(a.job.Kind) && (a.entered || a.job.Begun) && errors.Is(cause, providers.ErrPaused)
}

// park gives the job back until its sandbox goes on. One that came after the pause is a use of the sandbox, for which
// it is resumed where it is to be.
func (a *attempt) park(ctx context.Context) {
	const reason = "the sandbox is paused; the command continues after a resume"
	delay, late := min(backoff(a.job.Attempt), resumeLook), false
	a.giveBack(ctx, models.Requeue{Delay: delay, Reason: reason}, func(ctx context.Context, r models.Requeue) (err error) {
		late, err = a.w.store.Park(ctx, r, a.job.SandboxID)
		return err
	})
	if late {
		a.resume(ctx)
	}
}

// killLeft ends what an earlier attempt may have started of a command that was cancelled while nobody had it.
func (a *attempt) killLeft(ctx context.Context) (result, error) {
	sb, err := a.open(ctx)
	if err == nil {
		err = a.killIn(ctx, sb)
	}
	forget := func(ctx context.Context) error { return a.w.outputs.Forget(ctx, a.job, sb) }
	if err != nil {
		forget = nil
	}
	return result{afterCommit: forget}, errors.Join(errCancel, err)
}

// killIn gives up with the lease: a kill without an answer is no kill.
func (a *attempt) killIn(ctx context.Context, sb providers.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, a.w.lease)
	defer cancel()
	return sb.Kill(ctx, a.job.ID)
}

const (
	// resumeAttempts is how often a job asks for the resume of the sandbox that it has found paused. While one is under
	// way it looks on without a bound: the resume has one.
	resumeAttempts = 10
	resumeLook     = time.Second // between two looks, at most
)

// awaitsResume says whether the attempt failed only because its sandbox is paused, and has asked for its resume. What a
// pause has frozen asks for none.
func (a *attempt) awaitsResume(ctx context.Context, cause error) bool {
	if !errors.Is(cause, providers.ErrPaused) || a.pausedMidRun(cause) {
		return false
	}
	if a.job.Tries() >= resumeAttempts {
		resuming, err := a.w.store.Resuming(ctx, a.job.SandboxID)
		return resuming || isOurs(err)
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
	if err := autoresume.Submit(ctx, a.w.store, a.w.queue, a.job.TenantID, a.job.SandboxID); err != nil {
		a.log.WarnContext(ctx, "resume not submitted", "error", err)
	}
}
