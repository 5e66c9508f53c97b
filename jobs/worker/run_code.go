package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers/codecontext"
)

// runCode joins the cell where an earlier attempt has begun it. A cancel interrupts the cell and so ends it; losing the
// job to another worker only detaches.
func runCode(ctx context.Context, a *attempt, c *kind.Code) (result, error) {
	box, err := a.codeBox(ctx)
	if err != nil {
		return result{}, err
	}
	stop, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	defer a.onCancel(func() error { interrupt(); return nil })()
	giveBack, err := come(ctx, a, c, box, stop.Done())
	if err != nil {
		return result{}, err
	}
	if giveBack == nil {
		return late(a, c), nil
	}
	defer giveBack()
	cell := c.Cell(a.job)
	cell.Env, err = a.named(ctx, c.Env, c.SecretEnv)
	if missing, ok := errors.AsType[*secrets.Error](err); ok {
		begun, err := a.begun(ctx, box)
		if err != nil || !begun {
			return withoutSecret(missing), err
		}
	} else if err != nil {
		return result{}, err
	}
	o, err := codecontext.Run(ctx, box, cell, stop.Done())
	if err != nil {
		return result{}, err
	}
	shown, err := json.Marshal(o.Results)
	if err != nil {
		return result{}, err
	}
	out := result{value: codeResult(c, o), stdout: o.Stdout, stderr: o.Stderr, content: shown}
	if o.TimedOut {
		out.state, out.err = models.TimedOut, codeTimeout(a.job.Timeout(), o.StateLost)
	}
	return out, nil
}

// come waits for the cell's turn, which one that an earlier attempt has begun has had; who is waiting for it comes
// behind it all the same. One that was cancelled before it was begun never is.
func come(
	ctx context.Context,
	a *attempt,
	c *kind.Code,
	box codecontext.Box,
	stop <-chan struct{},
) (giveBack func(), err error) {
	switch known, err := a.begun(ctx, box); {
	case err != nil:
		return nil, err
	case known:
		giveBack, _ := a.w.contexts.TryLock(turnName(a, c))
		return giveBack, nil
	}
	if a.isCancelled() {
		return nil, errCancel
	}
	return turnOf(ctx, a, c, stop)
}

// begun says whether an earlier attempt has begun the cell.
func (a *attempt) begun(ctx context.Context, box codecontext.Box) (bool, error) {
	if a.job.Attempt == 1 {
		return false, nil
	}
	return codecontext.Known(ctx, box, a.job.ID)
}

func turnName(a *attempt, c *kind.Code) string { return a.job.SandboxID + "/" + c.ContextID() }

// turnOf waits for the cells that came before in the context, as long as the cell itself may take; nil = it was too
// long.
func turnOf(ctx context.Context, a *attempt, c *kind.Code, stop <-chan struct{}) (func(), error) {
	waiting, cancel := context.WithTimeout(ctx, a.job.Timeout())
	defer cancel()
	stopped := false
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-stop:
			stopped = true
			cancel()
		case <-waiting.Done():
		}
	})
	a.slot.Rest()
	giveBack, err := a.w.contexts.Lock(waiting, turnName(a, c))
	cancel()
	watch.Wait()
	switch {
	case err == nil:
		return giveBack, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case stopped:
		return nil, errCancel
	}
	return nil, nil
}

func late(a *attempt, c *kind.Code) result {
	return result{state: models.TimedOut, err: &models.JobError{Code: "timeout", Message: fmt.Sprintf(
		"earlier cells of context %q were still running after %v, so this cell was not started; raise timeout_seconds or "+
			"use another context",
		c.ContextID(),
		a.job.Timeout(),
	)}}
}

func codeTimeout(limit time.Duration, lost bool) *models.JobError {
	what := "was interrupted; its context keeps its state"
	if lost {
		what = "did not stop when it was interrupted, so its context was killed and its state is lost"
	}
	return &models.JobError{
		Code: "timeout",
		Message: fmt.Sprintf(
			"the cell reached its timeout of %v and %s; raise timeout_seconds if it needs longer",
			limit,
			what,
		),
	}
}

func codeResult(c *kind.Code, o codecontext.Outcome) kind.CodeResult {
	return kind.CodeResult{
		Language: c.Language, Context: c.ContextID(), ExecutionCount: o.Count, Results: []codecontext.Result{},
		ResultsTruncated: o.Cut,
		Error:            o.Error, ExitCode: o.ExitCode, StateLost: o.StateLost, TimedOut: o.TimedOut,
		StdoutBytes: o.StdoutBytes, StderrBytes: o.StderrBytes,
		StdoutTruncated: o.StdoutBytes > int64(len(o.Stdout)), StderrTruncated: o.StderrBytes > int64(len(o.Stderr)),
		DurationMS: o.Duration.Milliseconds(),
	}
}

// runCreateContext finds the context that an earlier attempt has started. A cancel that comes before it runs ends it;
// one that comes later comes too late.
func runCreateContext(ctx context.Context, a *attempt, c *kind.CreateContext) (result, error) {
	box, err := a.codeBox(ctx)
	if err != nil {
		return result{}, err
	}
	env, err := a.environment(ctx, c.Env, kind.SecretEnv{})
	if err != nil {
		return result{}, err
	}
	w := codecontext.Wish{ID: a.job.ID, Language: c.Language, Context: c.ContextOf(a.job), Env: env, Dir: c.Cwd}
	existing, err := codecontext.Create(ctx, box, w, func(ctx context.Context) (func(), error) {
		return a.w.contexts.Lock(ctx, a.job.SandboxID+"/"+w.Context)
	})
	switch {
	case a.isCancelled() && !existing:
		return result{}, errors.Join(errCancel, endContext(ctx, box, w))
	case err != nil:
		return result{}, err
	}
	return result{
		value:    kind.ContextResult{Context: w.Context, Language: w.Language, Existing: existing},
		detached: true,
	}, nil
}

// endContext ends what a cancelled job has started.
func endContext(ctx context.Context, box codecontext.Box, w codecontext.Wish) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return codecontext.Abandon(ctx, box, w)
}

// codeBox connects to the job's sandbox for code.
func (a *attempt) codeBox(ctx context.Context) (codecontext.Box, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	return codecontext.In(sb)
}

func runDeleteContext(ctx context.Context, a *attempt, d *kind.DeleteContext) (result, error) {
	box, err := a.codeBox(ctx)
	if err != nil {
		return result{}, err
	}
	return result{}, codecontext.Delete(ctx, box, d.Context)
}
