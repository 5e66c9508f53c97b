package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
	"sandyard/web/problem"
)

func invalid(field, message string) error { return problem.Invalid(field, message) }

// inside is the sandbox of a call: what tools do in it are jobs.
type inside struct {
	s     *Server
	c     *call
	named string // by the call; empty = the session's
	id    string // once it is known
}

var _ toolset.Box = (*inside)(nil)

// ID implements toolset.Box.
func (w *inside) ID() string { return w.id }

func (w *inside) sandbox(ctx context.Context) (models.Sandbox, error) {
	box, err := w.s.sandbox(ctx, w.c, w.named)
	w.id = box.ID
	return box, err
}

// do carries out a job and returns it when it has succeeded, with its result in into.
func (w *inside) do(ctx context.Context, args kind.Args, into any) (models.Job, error) {
	job, err := w.s.inSandbox(ctx, w.c, w.named, args, into)
	w.id = job.SandboxID
	return job, err
}

// inSandbox carries out a job and returns it when it has succeeded, with its result in into.
func (s *Server) inSandbox(
	ctx context.Context,
	c *call,
	sandboxID string,
	args kind.Args,
	into any,
) (models.Job, error) {
	var job models.Job
	var box models.Sandbox
	err := s.inBox(ctx, c, sandboxID, func(id string) (err error) {
		job, box, err = s.carry(ctx, c, id, args, patience)
		return err
	})
	if err != nil {
		return job, err
	}
	if job.State != models.Succeeded {
		return job, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputResult, models.OutputContent); err != nil {
		return job, err
	}
	if into == nil || len(job.Result) == 0 {
		return job, nil
	}
	if err := json.Unmarshal(job.Result, into); err != nil {
		return job, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return job, nil
}

// execOf is a tool's command as a job.
func execOf(c toolset.Command) *kind.Exec {
	e := &kind.Exec{
		Command: c.Shell, Argv: c.Argv, Cwd: c.Cwd, Env: c.Env, TimeoutSeconds: c.Timeout, MaxOutputBytes: toolset.KeptOutput,
		Merge: !c.Apart, StdinOpen: c.StdinOpen,
	}
	if len(c.Stdin) > 0 {
		e.Stdin, e.StdinEncoding = base64.StdEncoding.EncodeToString(c.Stdin), "base64"
	}
	return e
}

// Run implements toolset.Box.
func (w *inside) Run(ctx context.Context, c toolset.Command, wait time.Duration) (*toolset.Ran, error) {
	exec := execOf(c)
	if exec.TimeoutSeconds == 0 {
		exec.TimeoutSeconds = toolset.CommandTimeout.Seconds()
	}
	if wait == 0 {
		wait = patience
	}
	var r *toolset.Ran
	err := w.in(ctx, func(id string) (err error) {
		r, err = w.s.command(ctx, w.c, id, exec, wait)
		return err
	})
	return r, err
}

// in calls work with the sandbox, see inBox.
func (w *inside) in(ctx context.Context, work func(id string) error) error {
	return w.s.inBox(ctx, w.c, w.named, func(id string) error {
		w.id = id
		return work(id)
	})
}

// Launch implements toolset.Box.
func (w *inside) Launch(ctx context.Context, c toolset.Command) (*toolset.Ran, error) {
	var r *toolset.Ran
	err := w.in(ctx, func(id string) (err error) {
		r, err = w.s.launch(ctx, w.c, id, execOf(c))
		return err
	})
	return r, err
}

// Follow implements toolset.Box.
func (w *inside) Follow(
	ctx context.Context,
	exec string,
	from toolset.Cursor,
	wait time.Duration,
) (*toolset.Answer, error) {
	job, err := w.s.execJob(ctx, w.c, exec, w.named, anyExec)
	if err != nil {
		return nil, err
	}
	return w.s.execNow(ctx, w.c, job, from, wait)
}

// View implements toolset.Box.
func (w *inside) View(ctx context.Context, exec string, from *toolset.Cursor) (*toolset.Answer, error) {
	job, err := w.s.execJob(ctx, w.c, exec, w.named, inBackground)
	if err != nil {
		return nil, err
	}
	if from == nil {
		from = &toolset.Cursor{}
		if inBackground(job) {
			at, err := w.s.written(ctx, job)
			if err != nil {
				return nil, err
			}
			*from = toolset.Cursor{max(0, at[0]-toolset.MaxTail), max(0, at[1]-toolset.MaxTail)}
		}
	}
	return w.s.execNow(ctx, w.c, job, *from, 0)
}

// Write implements toolset.Box.
func (w *inside) Write(ctx context.Context, exec, input string, wait time.Duration) (*toolset.Answer, error) {
	job, err := w.s.execJob(ctx, w.c, exec, w.named, inBackground)
	if err != nil {
		return nil, err
	}
	if !inBackground(job) {
		return nil, problem.New(422, "no_input", "this command takes no input; start one with shell_interactive")
	}
	from, err := w.s.written(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := w.s.onExec(ctx, w.c, job, &kind.ExecStdin{ExecRef: kind.ExecRef{ExecID: job.ID}, Data: input}); err != nil {
		return nil, err
	}
	return w.s.follower(ctx, w.c, job, from, wait)
}

// Kill implements toolset.Box.
func (w *inside) Kill(ctx context.Context, exec string) (string, error) {
	job, err := w.s.execJob(ctx, w.c, exec, w.named, inBackground)
	if err != nil {
		return "", err
	}
	w.id = job.SandboxID
	if inBackground(job) {
		err = w.s.onExec(ctx, w.c, job, &kind.ExecDelete{ExecRef: kind.ExecRef{ExecID: job.ID}})
	} else {
		_, err = w.s.stop(ctx, job.ID)
	}
	return job.ID, err
}

// Hint implements toolset.Box.
func (w *inside) Hint(ctx context.Context, _ *toolset.Ran) string {
	box, err := w.sandbox(ctx)
	if err != nil {
		return "" // it is only a comfort
	}
	return policyHint(box)
}

// policyHint says what the sandbox may connect to.
func policyHint(box models.Sandbox) string {
	policy, err := kind.PolicyOf(box.Egress)
	const change = "; change it with PUT /v1/sandboxes/%s/egress"
	switch {
	case err != nil:
		return ""
	case policy.Off():
		return fmt.Sprintf(
			"\n[sandbox %s has no network: its egress policy allows nothing"+change+"]\n",
			box.ID,
			box.ID,
		)
	default:
		return fmt.Sprintf(
			"\n[egress policy of sandbox %s: allow %v, deny %v"+change+"]\n",
			box.ID,
			policy.Allow,
			policy.Deny,
			box.ID,
		)
	}
}

// Code implements toolset.Box.
func (w *inside) Code(
	ctx context.Context,
	language, code string,
	timeout float64,
	wait time.Duration,
) (*toolset.Answer, error) {
	var job models.Job
	var box models.Sandbox
	cell := &kind.Code{Language: language, Code: code, TimeoutSeconds: timeout, Merge: true}
	err := w.in(ctx, func(id string) (err error) {
		job, box, err = w.s.carry(ctx, w.c, id, cell, wait)
		return err
	})
	if goes, ok := errors.AsType[*running](err); ok {
		return w.s.partOf(ctx, goes.job, toolset.Cursor{}).Answer(), nil
	}
	if err != nil {
		return nil, err
	}
	return w.s.cellEnded(ctx, job, box, toolset.Cursor{})
}

// cellEnded is the answer about a cell that has ended: its output behind the cursor, and what it has shown.
func (s *Server) cellEnded(
	ctx context.Context,
	job models.Job,
	box models.Sandbox,
	from toolset.Cursor,
) (*answer, error) {
	parts := []models.Output{models.OutputStdout, models.OutputStderr, models.OutputResult, models.OutputContent}
	if err := s.mw.Output(ctx, &job, parts...); err != nil {
		return nil, err
	}
	r, err := s.ended(ctx, job, box, from)
	if err != nil {
		return nil, err
	}
	var res kind.CodeResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return nil, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	if len(job.Content) > 0 {
		if err := json.Unmarshal(job.Content, &res.Results); err != nil {
			return nil, fmt.Errorf("read what job %s has shown: %w", job.ID, err)
		}
	}
	return toolset.Cell{Results: res.Results, Error: res.Error, StateLost: res.StateLost}.Answer(r), nil
}

// SetEnv implements toolset.Box.
func (w *inside) SetEnv(ctx context.Context, name string, value *string) error {
	_, err := w.do(ctx, &kind.SetEnv{Env: map[string]*string{name: value}}, nil)
	return err
}

// Processes implements toolset.Box.
func (w *inside) Processes(ctx context.Context) (list providers.ProcessList, err error) {
	_, err = w.do(ctx, &kind.ListProcesses{}, &list)
	return list, err
}

// SignalProcess implements toolset.Box.
func (w *inside) SignalProcess(ctx context.Context, pid int, start int64, signal string) error {
	_, err := w.do(ctx, &kind.SignalProcess{Pid: pid, Start: start, Signal: signal}, nil)
	return err
}
