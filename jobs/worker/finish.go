package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sandyard/jobs/circuit"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/providers"
)

// conclude ends the attempt: the job ends with it, runs again later, or is left to another worker.
func (a *attempt) conclude(ctx context.Context, res result, err error) {
	owned := ctx
	ctx = context.WithoutCancel(ctx)
	var away *circuit.AwayError
	if owned.Err() == nil {
		err = a.doubt(ctx, err)
	}
	switch cause := context.Cause(owned); {
	case errors.Is(err, models.ErrStale), errors.Is(cause, errFenced):
		a.log.WarnContext(ctx, "result dropped", "error", errFenced)
	case errors.Is(cause, errShutdown):
		a.handOver(ctx, 0, errShutdown)
	case errors.As(err, new(*models.PlacedError)) && !a.isCancelled():
		a.handOver(ctx, 0, err)
	case (errors.Is(err, models.ErrEarlier) || errors.Is(err, errNotBegun)) && !a.isCancelled():
		a.handOver(ctx, min(backoff(a.job.Attempt), resumeLook), err)
	case err != nil && a.moveOn(ctx, err):
	case errors.As(err, &away) && a.isWanted():
		a.handOver(ctx, away.Rest, away)
	case err != nil && a.isWanted() && a.mayRetry(err):
		a.log.WarnContext(ctx, "attempt failed, trying again", "error", err)
		a.requeue(ctx, max(backoff(a.job.Tries()), retryAfter(err)), err)
	case err != nil && !a.isCancelled() && a.awaitsResume(ctx, err):
		a.log.InfoContext(ctx, "sandbox paused, trying again after its resume")
		a.requeue(ctx, min(backoff(a.job.Attempt), resumeLook), err)
	case err != nil && a.pausedMidRun(err):
		a.park(ctx)
	default:
		a.finish(owned, a.outcome(res, err), res)
	}
}

// doubt counts the outcome for the provider, and answers an awayError in its place where that is why the attempt
// failed.
func (a *attempt) doubt(ctx context.Context, err error) error {
	if errors.As(err, new(*circuit.AwayError)) {
		return err
	}
	a.w.health.Note(a.job.Kind, err, time.Since(a.began))
	ctx, cancel := a.w.waits.Within(ctx, 2*circuit.AskTimeout)
	defer cancel()
	if gone := a.w.health.Suspect(ctx, err); gone != nil {
		return gone
	}
	return err
}

// isWanted says whether something is still to be done in the sandbox: a cancelled program may be running, and is to be
// killed.
func (a *attempt) isWanted() bool { return !a.isCancelled() || models.IsProgram(a.job.Kind) }

// mayRetry says whether the error may pass and attempts are left.
func (a *attempt) mayRetry(err error) bool {
	if p, ok := errors.AsType[*providers.Error](err); ok {
		return (p.Retryable() || a.job.Kind == models.KindDelete && isOfKey(p)) && a.job.Tries() < attemptsFor(a.job, p)
	}
	return isOurs(err) && a.job.Tries() < a.job.MaxAttempts
}

// isOfKey says whether the provider does not take a key. A delete waits for another: until then the sandbox is there.
func isOfKey(p *providers.Error) bool {
	return p.Class == providers.Refused || p.Class == providers.KeyRefused
}

// longestRest bounds what a provider may ask for.
const longestRest = 5 * time.Minute

// retryAfter is how long the provider wants to be left alone.
func retryAfter(err error) time.Duration {
	var p *providers.Error
	if !errors.As(err, &p) {
		return 0
	}
	return min(p.RetryAfter, longestRest)
}

// requeue gives the job back after a failure.
func (a *attempt) requeue(ctx context.Context, delay time.Duration, why error) {
	a.giveBack(ctx, models.Requeue{Delay: delay, Reason: reasonOf(why), Failed: true}, a.w.store.Requeue)
}

// handOver gives the job back without one.
func (a *attempt) handOver(ctx context.Context, delay time.Duration, why error) {
	a.giveBack(ctx, models.Requeue{Delay: delay, Reason: reasonOf(why)}, a.w.store.Requeue)
}

// giveBack gives the job back by a call on the store. A timer sends it again when it is due; if this worker does not
// live that long, the sweep does.
func (a *attempt) giveBack(ctx context.Context, r models.Requeue, give func(context.Context, models.Requeue) error) {
	giving, cancel := a.w.waits.Within(ctx, a.w.lease)
	defer cancel()
	r.AttemptRef, r.Begun = a.held(), a.entered
	if err := give(giving, r); err != nil {
		a.log.WarnContext(ctx, "job not requeued, the sweep recovers it", "error", err)
		return
	}
	a.log.InfoContext(ctx, "job requeued", "reason", r.Reason)
	w, tenant := a.w, a.job.TenantID
	time.AfterFunc(r.Delay, func() {
		if tasks, err := w.store.DispatchReady(ctx, tenant); err == nil {
			w.queue.Send(ctx, tasks)
		}
	})
}

// reasonOf is what users may know of an error: the text of one that no provider has worded stays in the log.
func reasonOf(err error) string {
	if errors.Is(err, errShutdown) {
		return "its worker is stopping"
	}
	if placed, ok := errors.AsType[*models.PlacedError](err); ok {
		return placed.Error()
	}
	if errors.As(err, new(*circuit.AwayError)) || errors.Is(err, models.ErrEarlier) || errors.Is(err, errNotBegun) {
		return err.Error()
	}
	return providers.AsError(err).Message
}

// outcome turns what came back into the job's end.
func (a *attempt) outcome(res result, err error) models.Outcome {
	o := models.Outcome{
		AttemptRef: a.held(), SandboxID: a.job.SandboxID, Kind: a.job.Kind, State: models.Succeeded,
		Result: res.value, Stdout: res.stdout, Stderr: res.stderr, Content: res.content, Error: res.err,
		Provider: time.Since(a.began), Sandbox: res.change, Callback: a.job.CallbackURL != nil, Grant: res.grant,
	}
	if res.state != "" {
		o.State = res.state
	}
	if err != nil {
		o.Result, o.Grant = nil, nil
		o.State, o.Error, o.Sandbox = a.failure(err)
	}
	if a.isCancelled() && (err != nil || models.IsProgram(a.job.Kind) && !res.detached) {
		o.State = models.Cancelled
		o.Error = &models.JobError{Code: "cancelled", Message: "the job was cancelled while it ran"}
	}
	return o
}

// failure is the end that an error means.
func (a *attempt) failure(err error) (models.JobState, *models.JobError, models.Transition) {
	var ended *models.EndedError
	var known *providers.Error
	switch {
	case errors.As(err, &ended):
		return models.Failed, &models.JobError{
			Code:    "sandbox_" + string(ended.State),
			Message: ended.Error(),
		}, models.Transition{}
	case !errors.As(err, &known) && errors.Is(err, context.DeadlineExceeded):
		return models.TimedOut, &models.JobError{
			Code: "timeout", Retryable: true,
			Message: fmt.Sprintf("the provider did not finish within %v", a.job.Timeout()),
		}, models.Transition{}
	case isOurs(err):
		return models.Failed, &models.JobError{
			Code: "database_unavailable", Retryable: true,
			Message: "the platform's database failed in every attempt of the job; submit it again",
		}, models.Transition{}
	}
	p := providers.AsError(err)
	a.log.Warn("job failed", "error", loggable(err))
	why := &models.JobError{Code: string(p.Class), Message: p.Message, Retryable: p.Retryable()}
	if errors.Is(p, providers.ErrNotFound) || errors.Is(p, providers.ErrLost) {
		return a.sandboxLost(why)
	}
	return models.Failed, why, models.Transition{}
}

// loggable is what the log may hold of an error. The text of one that a user's code or wish has caused quotes it: the
// user reads it in the job, and the log says what kind it is.
func loggable(err error) string {
	var known *providers.Error
	if errors.As(err, &known) && !known.Retryable() && known.Class != providers.NotFound && known.Class != providers.Lost {
		return string(known.Class)
	}
	return err.Error()
}

// sandboxLost: of a command that was started nobody can say how it ended; a file call has simply failed.
func (a *attempt) sandboxLost(why *models.JobError) (models.JobState, *models.JobError, models.Transition) {
	change := models.Transition{To: models.SandboxLost, Reason: why.Message}
	if a.job.Kind == models.KindCreate || a.job.Kind == models.KindDelete {
		change = models.Transition{}
	}
	if models.IsProgram(a.job.Kind) || a.job.Kind == models.KindExecWait {
		return models.Lost, why, change
	}
	return models.Failed, why, change
}

// finish writes the end down, trying for as long as the job is ours, and then does what follows from it.
func (a *attempt) finish(owned context.Context, o models.Outcome, res result) {
	a.mu.Lock()
	a.finishing = true
	a.mu.Unlock()
	f, err := a.commit(owned, o)
	ctx := context.WithoutCancel(owned)
	if err != nil {
		a.log.WarnContext(ctx, "result dropped", "error", err)
		return
	}
	if o.Sandbox.To == models.SandboxLost { // what died may have left a body
		res.afterSandboxGone = func(ctx context.Context) error { return a.w.provider.Delete(ctx, a.job.SandboxID) }
	}
	a.w.queue.Follow(ctx, f)
	a.w.metrics.observe(o, a.job)
	a.w.security.Ended(o, a.job)
	a.log.InfoContext(ctx, "job finished", "state", o.State, "took", time.Since(a.began))
	if f.Callbacks {
		a.w.webhooks.Dispatch(ctx, a.job.TenantID)
	}
	a.followUp(ctx, f, res)
}

// longestCommit is more than a worker can be without its database and own the job.
const longestCommit = time.Hour

func (a *attempt) commit(owned context.Context, o models.Outcome) (models.FinishEffects, error) {
	ctx, cancel := a.w.waits.Within(owned, longestCommit) // a cancel ends the job, not the writing of its end
	defer cancel()
	unlock, err := a.w.endings.Lock(ctx, a.job.SandboxID)
	if err != nil {
		return models.FinishEffects{}, err
	}
	defer unlock()
	unsure := false
	for pause := (retryPause{}); ; {
		f, err := a.w.store.Finish(ctx, o)
		if unsure && errors.Is(err, models.ErrStale) {
			f, err = a.w.store.FinishedBy(ctx, o.AttemptRef, a.w.node.ID) // an earlier try may have been more than that
		}
		if err == nil || errors.Is(err, models.ErrStale) {
			return f, err
		}
		unsure = unsure || errors.Is(err, pg.ErrUncertain)
		if pg.IsRefused(err) {
			o = unstorable(o)
		}
		a.log.WarnContext(ctx, "job outcome not stored, trying again", "error", err)
		if !pause.wait(owned) {
			return f, context.Cause(owned)
		}
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
	}
}

// unstorable is the end of a job whose result the database does not take, for ever.
func unstorable(o models.Outcome) models.Outcome {
	o.State, o.Result, o.Grant = models.Failed, nil, nil
	o.Error = &models.JobError{
		Code: "result_not_storable",
		Message: "the job ran, but its result holds data that cannot be stored, such as a NUL character; remove it and " +
			"submit the job again",
	}
	return o
}

func (a *attempt) followUp(ctx context.Context, f models.FinishEffects, res result) {
	ctx, cancel := a.w.waits.Within(ctx, kind.DeleteTimeout)
	defer cancel()
	for _, step := range []struct {
		do   func(context.Context) error
		when bool
	}{{res.afterCommit, true}, {res.afterSandboxGone, f.SandboxEnded}} {
		if step.do == nil || !step.when {
			continue
		}
		err := step.do(ctx)
		if err != nil && !errors.Is(err, providers.ErrNotFound) && !errors.Is(err, providers.ErrLost) { // nothing to tidy up
			a.log.WarnContext(ctx, "follow-up failed", "error", loggable(err))
		}
	}
}
