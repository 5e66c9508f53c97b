package worker

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"sandyard/jobs/loop"
	"sandyard/providers"
)

const (
	// watchStep is how long one look at an exec waits for its end.
	watchStep = 30 * time.Second
	// watchSlack is how much longer than that a look may take.
	watchSlack = 30 * time.Second
	// pausedStep is how often a paused sandbox is asked for again.
	pausedStep = 2 * time.Second
	// watchFailures is how many looks in a row may fail in a way that may pass.
	watchFailures = 8
)

// watches are the execs whose end somebody waits for. Any number of waits for one exec share one call.
type watches struct {
	life  *loop.Life
	looks singleflight.Group
}

// end waits for the end of an exec for as long as left, and returns how it stands. A pause in between is waited
// through; of an exec that somebody has waited for before, the sandbox may be paused from the start.
func (w *watches) end(
	ctx context.Context,
	p providers.Provider,
	sandboxID, name string,
	left time.Duration,
	again bool,
) (providers.Exec, error) {
	timer := time.NewTimer(left)
	defer timer.Stop()
	var last providers.Exec
	if again {
		last = providers.Exec{ID: name, Running: true}
	}
	for failures := 0; ; {
		var pause time.Duration
		select {
		case r := <-w.looks.DoChan(sandboxID+"/"+name, func() (any, error) { return w.look(ctx, p, sandboxID, name) }):
			e, _ := r.Val.(providers.Exec)
			switch {
			case r.Err == nil && !e.Running:
				return e, nil
			case r.Err == nil:
				last, failures = e, 0
			case last.ID+e.ID != "" && errors.Is(r.Err, providers.ErrPaused):
				pause = pausedStep
				if last.ID == "" {
					last = e
				}
			case failures < watchFailures && providers.AsError(r.Err).Retryable():
				failures++
				pause = max(backoff(failures), retryAfter(r.Err))
			default:
				return last, r.Err
			}
		case <-timer.C:
			return w.now(ctx, p, sandboxID, name, last)
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
		select {
		case <-time.After(pause):
		case <-timer.C:
			return w.now(ctx, p, sandboxID, name, last)
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// look is one call for all who wait; it does not end with the first of them.
func (w *watches) look(ctx context.Context, p providers.Provider, sandboxID, name string) (providers.Exec, error) {
	ctx, cancel := w.life.Within(ctx, watchStep+watchSlack)
	defer cancel()
	return execNow(ctx, p, sandboxID, name, watchStep)
}

// now is how an exec stands when the time for waiting is over. One that cannot be asked has been running until then.
func (w *watches) now(
	ctx context.Context,
	p providers.Provider,
	sandboxID, name string,
	last providers.Exec,
) (providers.Exec, error) {
	e, err := execNow(ctx, p, sandboxID, name, 0)
	if err != nil && last.ID != "" && !providers.IsGone(err) {
		return last, nil
	}
	return e, err
}

// execNow asks how an exec stands. With ErrPaused it says whether the sandbox was running before, and so the exec.
func execNow(
	ctx context.Context,
	p providers.Provider,
	sandboxID, name string,
	wait time.Duration,
) (providers.Exec, error) {
	sb, err := p.Open(ctx, sandboxID)
	if err != nil {
		return providers.Exec{}, err
	}
	b, ok := sb.(providers.Background)
	if !ok {
		return providers.Exec{}, providers.NotSupported.Errorf("this provider does not support background execs")
	}
	e, err := b.Exec(ctx, name, wait)
	if errors.Is(err, providers.ErrPaused) {
		e.ID, e.Running = name, true
	}
	return e, err
}
