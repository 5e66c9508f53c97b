package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// errNotBegun: a background exec was accepted, and its job has not started it yet.
var errNotBegun = errors.New("the exec has not started yet; the job waits for it")

// awaitStart turns the error that a sandbox does not know an exec into errNotBegun where the exec's job is still to
// start it. A job that has just succeeded may have started it after the sandbox was asked, so the first attempt is
// given back then, too.
func (a *attempt) awaitStart(ctx context.Context, exec string, err error) error {
	var unknown *providers.Error
	if !errors.As(err, &unknown) || unknown.Class != providers.NoExec || !strings.HasPrefix(exec, "job_") {
		return err
	}
	j, lookup := a.w.store.JobEnd(ctx, a.job.TenantID, exec)
	switch {
	case errors.Is(lookup, models.ErrNotFound):
		return err
	case lookup != nil:
		return lookup
	case j.SandboxID != a.job.SandboxID || j.Kind != models.KindExec:
		return err
	case !j.State.Terminal(), j.State == models.Succeeded && a.job.Attempt == 1:
		return errNotBegun
	}
	return err
}

// able connects to the job's sandbox for what only some providers support, which lacks says of the others.
func able[T any](ctx context.Context, a *attempt, lacks string) (inside T, err error) {
	sb, err := a.open(ctx)
	if err != nil {
		return inside, err
	}
	inside, ok := sb.(T)
	if !ok {
		err = providers.NotSupported.Errorf("provider %s %s", a.w.node.Provider, lacks)
	}
	return inside, err
}

// background connects to the job's sandbox for commands that nobody waits for.
func (a *attempt) background(ctx context.Context) (providers.Background, error) {
	return able[providers.Background](ctx, a, "does not support background execs")
}

// launch starts the command and leaves it to itself. A cancel that comes before it runs kills it; one that comes later
// comes too late.
func launch(ctx context.Context, a *attempt, e *kind.Exec) (result, error) {
	b, err := a.background(ctx)
	if err != nil {
		return result{}, err
	}
	cmd := e.ProviderCommand(a.job)
	if cmd.Timeout, err = e.Timeout(); err != nil {
		return result{}, err
	}
	cmd.StdinOpen = e.StdinOpen
	if cmd.Env, err = a.environment(ctx, e.Env, e.SecretEnv); err != nil {
		return a.without(ctx, err)
	}
	started, err := b.Launch(ctx, cmd)
	if err != nil {
		return result{}, err
	}
	if a.isCancelled() {
		_, err := a.killLeft(ctx)
		return result{}, err
	}
	return result{value: kind.BackgroundResult{ExecID: a.job.ID, Pid: started.Pid}, detached: true}, nil
}

func runExecWait(ctx context.Context, a *attempt, x *kind.ExecWait) (result, error) {
	name, err := x.Name()
	if err != nil {
		return result{}, err
	}
	left := a.job.Timeout()
	if a.job.StartedAt != nil { // by an earlier attempt
		left -= max(0, a.w.store.Now(ctx).Sub(*a.job.StartedAt))
	}
	a.slot.Rest()
	e, err := a.w.watches.end(ctx, a.w.provider, a.job.SandboxID, name, left, a.job.Begun)
	a.entered = a.entered || e.ID != "" || errors.Is(err, errShutdown)
	out := result{value: e}
	if err = a.awaitStart(ctx, name, err); errors.Is(err, errNotBegun) && left <= 0 {
		return result{state: models.TimedOut, err: &models.JobError{
			Code: "timeout", Message: fmt.Sprintf("the exec had not started after %v", a.job.Timeout()),
		}}, nil
	}
	if err == nil && e.Running {
		out.state = models.TimedOut
		out.err = &models.JobError{
			Code:    "timeout",
			Message: fmt.Sprintf("the exec was still running after %v; it continues", a.job.Timeout()),
		}
	}
	return out, err
}

// feedPatience is how long one attempt waits for a command that does not read its input.
const feedPatience = 5 * time.Second

func runExecStdin(ctx context.Context, a *attempt, x *kind.ExecStdin) (result, error) {
	return a.onExec(ctx, x.ExecRef, func(b providers.Background, name string) error {
		_, err := b.Feed(ctx, name, providers.Input{ID: a.job.ID, Data: x.Input(), EOF: x.EOF, Wait: feedPatience})
		return err
	})
}

func runExecSignal(ctx context.Context, a *attempt, x *kind.ExecSignal) (result, error) {
	return a.onExec(ctx, x.ExecRef, func(b providers.Background, name string) error {
		return b.Signal(ctx, name, a.job.ID, kind.SignalName(x.Signal))
	})
}

func runExecDelete(ctx context.Context, a *attempt, x *kind.ExecDelete) (result, error) {
	name, err := x.Name()
	if err != nil {
		return result{}, err
	}
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	if err := sb.Kill(ctx, name); err != nil {
		return result{}, err
	}
	return result{}, sb.Forget(ctx, name)
}

func (a *attempt) onExec(
	ctx context.Context,
	ref kind.ExecRef,
	do func(providers.Background, string) error,
) (result, error) {
	name, err := ref.Name()
	if err != nil {
		return result{}, err
	}
	b, err := a.background(ctx)
	if err != nil {
		return result{}, err
	}
	return result{}, a.awaitStart(ctx, name, do(b, name))
}

func runListProcesses(ctx context.Context, a *attempt, _ *kind.ListProcesses) (result, error) {
	in, err := a.processes(ctx)
	if err != nil {
		return result{}, err
	}
	list, err := in.Processes(ctx)
	for i, p := range list.Processes {
		if _, err := (kind.ExecRef{ExecID: p.ExecID}).Name(); err != nil { // the platform's own, such as a code context
			list.Processes[i].ExecID = ""
		}
	}
	return result{value: list}, err
}

func runSignalProcess(ctx context.Context, a *attempt, s *kind.SignalProcess) (result, error) {
	in, err := a.processes(ctx)
	if err != nil {
		return result{}, err
	}
	return result{}, in.SignalProcess(ctx, providers.ProcessSignal{
		ID: a.job.ID, Pid: s.Pid, Start: s.Start, Signal: kind.SignalName(s.Signal),
	})
}

// processes connects to the job's sandbox for its processes.
func (a *attempt) processes(ctx context.Context) (providers.Processes, error) {
	return able[providers.Processes](ctx, a, "does not list processes")
}
