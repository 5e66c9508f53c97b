package worker

import (
	"context"
	"errors"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// setupOutput is kept of what one of them writes.
	setupOutput = 1 << 20
	// setupWait is how long one look at the output waits for more.
	setupWait = 5 * time.Second
)

// setUp prepares a new sandbox by its steps. A step that an earlier attempt has begun is gone on with.
func (a *attempt) setUp(ctx context.Context, sandboxID string, steps []kind.Step) error {
	if len(steps) == 0 {
		return nil
	}
	a.slot.Rest()
	inside, err := a.open(ctx)
	if err != nil {
		return err
	}
	for _, one := range steps {
		if err := a.step(ctx, inside, sandboxID, one); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) step(ctx context.Context, inside providers.Sandbox, sandboxID string, one kind.Step) error {
	env, err := a.environment(ctx, one.Env, one.Secrets)
	if missing, ok := errors.AsType[*secrets.Error](err); ok {
		return providers.SetupFailed.Errorf("%s was not started: %s", one.What, missing.Why.Message)
	}
	if err != nil {
		return err
	}
	cmd := providers.Command{
		Name:      one.Name,
		Shell:     "exec 2>&1\n" + one.Script,
		Env:       env,
		Timeout:   one.Limit,
		MaxOutput: setupOutput,
	}
	logged, err := a.w.store.SetupLogged(ctx, sandboxID, one.Name)
	if err != nil {
		return err
	}
	log := a.openSetupLog(ctx, sandboxID, one.Name, logged)
	res, err := follow(ctx, inside, cmd, logged, log)
	log.close()
	if err != nil {
		return err
	}
	switch {
	case res.TimedOut:
		return providers.SetupFailed.Errorf(
			"%s did not end within %v; raise its timeout_seconds. Its last output: %s",
			one.What,
			one.Limit,
			lastWords(res),
		)
	case res.ExitCode != 0:
		return providers.SetupFailed.Errorf("%s ended with exit code %d: %s", one.What, res.ExitCode, lastWords(res))
	}
	return nil
}

// follow runs a command, or goes on with it, and writes what it says beyond the first skip bytes to log as it says it,
// where the provider can tell; else at its end.
func follow(
	ctx context.Context,
	inside providers.Sandbox,
	cmd providers.Command,
	skip int64,
	log *buildLog,
) (providers.Result, error) {
	b, ok := inside.(providers.Background)
	if !ok {
		res, err := inside.Run(ctx, cmd)
		if err == nil {
			_, _ = log.Write(res.Stdout[min(skip, int64(len(res.Stdout))):]) // it never fails
		}
		return res, err
	}
	e, err := b.Launch(ctx, cmd)
	var tail []byte
	for at := skip; err == nil && (e.Running || at < e.StdoutBytes); {
		var out providers.Output
		out, err = b.Output(ctx, cmd.Name, providers.OutputQuery{Offset: at, Wait: setupWait})
		if err != nil {
			break
		}
		_, _ = log.Write(out.Data)
		if tail = append(tail, out.Data...); len(tail) > 8<<10 {
			tail = tail[len(tail)-4<<10:]
		}
		e, at = out.Exec, max(at, out.Begin)+int64(len(out.Data))
	}
	if err != nil {
		return providers.Result{}, err
	}
	res := providers.Result{
		TimedOut:    e.TimedOut,
		Signal:      e.Signal,
		OOMKilled:   e.OOMKilled,
		Stdout:      tail,
		StdoutBytes: e.StdoutBytes,
	}
	if e.ExitCode != nil {
		res.ExitCode = *e.ExitCode
	}
	return res, nil
}

// forgetSteps drops the output of the steps, when the create has been written down: until then another attempt may need
// it.
func (a *attempt) forgetSteps(ctx context.Context, steps []kind.Step) error {
	if len(steps) == 0 {
		return nil
	}
	inside, err := a.open(ctx)
	for _, one := range steps {
		if err == nil {
			err = inside.Forget(ctx, one.Name)
		}
	}
	return err
}

// openSetupLog opens the log of a step, of which logged bytes are there already.
func (a *attempt) openSetupLog(ctx context.Context, sandboxID, step string, logged int64) *buildLog {
	l := a.openLog(ctx, func(ctx context.Context, h models.AttemptRef, data []byte) error {
		return a.w.store.AppendSetupLog(ctx, h, sandboxID, step, data)
	})
	l.kept = int(min(logged, maxBuildLog))
	return l
}
