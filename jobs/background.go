package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// BackgroundResult is what the job that started a background exec says of it.
type BackgroundResult struct {
	ExecID string `json:"exec_id" doc:"The id of this job, which names the exec"`
	Pid    int    `json:"pid" doc:"Inside the sandbox"`
}

// ExecRef names a background exec.
type ExecRef struct {
	ExecID string `json:"exec_id" doc:"The id of the job that started the exec; for a terminal, term_ and its name"`
}

// name is the command's name in the sandbox. Other names than those of jobs and terminals are none of the users' business.
func (r ExecRef) name() (string, error) {
	if !strings.HasPrefix(r.ExecID, "job_") && !strings.HasPrefix(r.ExecID, "term_") || len(r.ExecID) > 64 || strings.ContainsAny(r.ExecID, "/?#%\x00") {
		return "", invalid("exec_id", "%q is not an exec; use the id of the job that started it", r.ExecID)
	}
	return r.ExecID, nil
}

// background connects to the job's sandbox for commands that nobody waits for.
func (a *attempt) background(ctx context.Context) (providers.Background, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := sb.(providers.Background)
	if !ok {
		return nil, providers.Errorf(providers.NotSupported, "provider %s does not support background execs", a.w.node.Provider)
	}
	return b, nil
}

// launch starts the command and leaves it to itself. A cancel that comes before it runs kills it; one that comes later
// comes too late.
func (e *Exec) launch(ctx context.Context, a *attempt) (result, error) {
	b, err := a.background(ctx)
	if err != nil {
		return result{}, err
	}
	cmd := e.command(a.job)
	if cmd.Timeout, err = e.timeout(); err != nil {
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
	return result{value: BackgroundResult{ExecID: a.job.ID, Pid: started.Pid}, detached: true}, nil
}

// ExecWait waits for the end of a background exec. It keeps no slot of a worker, and counts as activity of the sandbox.
type ExecWait struct {
	ExecRef
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"How long to wait for the exec's end; the exec continues afterwards; default 300, at most 86400"`
}

// Kind implements Args.
func (*ExecWait) Kind() string { return models.KindExecWait }

// Validate implements Args.
func (x *ExecWait) Validate() error {
	_, err := x.name()
	return err
}

func (x *ExecWait) timeout() (time.Duration, error) {
	return seconds("timeout_seconds", x.TimeoutSeconds, DefaultExecTimeout, 100*time.Millisecond)
}

func (x *ExecWait) run(ctx context.Context, a *attempt) (result, error) {
	name, err := x.name()
	if err != nil {
		return result{}, err
	}
	left := a.job.Timeout()
	if a.job.StartedAt != nil { // by an earlier attempt
		left -= max(0, a.w.store.Now(ctx).Sub(*a.job.StartedAt))
	}
	a.slot.rest()
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
		out.err = &models.JobError{Code: "timeout", Message: fmt.Sprintf("the exec was still running after %v; it continues", a.job.Timeout())}
	}
	return out, err
}

// ExecStdin writes to the standard input of a background exec that was started with stdin_open.
type ExecStdin struct {
	ExecRef
	Data     string `json:"data,omitempty" doc:"Appended to earlier input"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of data in this request; default utf-8"`
	EOF      bool   `json:"eof,omitempty" doc:"Close the input after data"`

	blob []byte
}

// feedPatience is how long one attempt waits for a command that does not read its input.
const feedPatience = 5 * time.Second

// Kind implements Args.
func (*ExecStdin) Kind() string { return models.KindExecStdin }

// Validate implements Args.
func (x *ExecStdin) Validate() error {
	if x.Data == "" && len(x.blob) == 0 && !x.EOF {
		return invalid("data", "is missing; give data, eof or both")
	}
	_, err := x.name()
	return err
}

func (x *ExecStdin) takeBlob() ([]byte, error) {
	b, err := decode("data", x.Data, x.Encoding)
	x.Data, x.Encoding = "", ""
	return b, err
}

func (x *ExecStdin) setBlob(b []byte) { x.blob = b }

func (x *ExecStdin) run(ctx context.Context, a *attempt) (result, error) {
	return a.onExec(ctx, x.ExecRef, func(b providers.Background, name string) error {
		_, err := b.Feed(ctx, name, providers.Input{ID: a.job.ID, Data: x.blob, EOF: x.EOF, Wait: feedPatience})
		return err
	})
}

// ExecSignal sends a signal to the process group of an exec.
type ExecSignal struct {
	ExecRef
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGUSR1; the prefix SIG is optional"`
}

// Kind implements Args.
func (*ExecSignal) Kind() string { return models.KindExecSignal }

// Validate implements Args.
func (x *ExecSignal) Validate() error {
	if err := checkSignal(x.Signal); err != nil {
		return err
	}
	_, err := x.name()
	return err
}

func (x *ExecSignal) run(ctx context.Context, a *attempt) (result, error) {
	return a.onExec(ctx, x.ExecRef, func(b providers.Background, name string) error {
		return b.Signal(ctx, name, a.job.ID, signalName(x.Signal))
	})
}

// ExecDelete kills an exec with its whole process tree, if it still runs, and drops its output.
type ExecDelete struct {
	ExecRef
}

// Kind implements Args.
func (*ExecDelete) Kind() string { return models.KindExecDelete }

// Validate implements Args.
func (x *ExecDelete) Validate() error {
	_, err := x.name()
	return err
}

func (x *ExecDelete) run(ctx context.Context, a *attempt) (result, error) {
	name, err := x.name()
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

func (a *attempt) onExec(ctx context.Context, ref ExecRef, do func(providers.Background, string) error) (result, error) {
	name, err := ref.name()
	if err != nil {
		return result{}, err
	}
	b, err := a.background(ctx)
	if err != nil {
		return result{}, err
	}
	return result{}, a.awaitStart(ctx, name, do(b, name))
}
