package mcp

import (
	"context"
	"fmt"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
)

type execStart struct {
	Command   string            `json:"command,omitempty" jsonschema:"A command line for bash; or use argv"`
	Argv      []string          `json:"argv,omitempty" jsonschema:"A program and its arguments, run without a shell; or use command"`
	Cwd       string            `json:"cwd,omitempty" jsonschema:"Working directory; default the sandbox's"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"Environment variables for it"`
	StdinOpen bool              `json:"stdin_open,omitempty" jsonschema:"Keep its input open for exec_stdin"`
	Timeout   float64           `json:"timeout,omitempty" jsonschema:"Seconds until it is killed; default: it ends with the sandbox"`
	in
}

func (s *Server) execStart(ctx context.Context, c *call, a *execStart) (*answer, error) {
	box := &inside{s: s, c: c, named: a.Sandbox}
	return toolset.Started(box.Launch(ctx, toolset.Command{
		Shell: a.Command, Argv: a.Argv, Cwd: a.Cwd, Env: a.Env, StdinOpen: a.StdinOpen, Timeout: a.Timeout,
	}))
}

// execOutput has the arguments of shell_wait.
type execOutput struct {
	toolset.ShellWaitArgs
	in
}

func (s *Server) execOutput(ctx context.Context, c *call, a *execOutput) (*answer, error) {
	from, err := toolset.ReadCursor(a.Cursor)
	if err != nil {
		return nil, err
	}
	return (&inside{s: s, c: c, named: a.Sandbox}).Follow(ctx, a.ExecID, from, toolset.Wait(a.Seconds))
}

// written is the cursor behind all that a background command has written so far.
func (s *Server) written(ctx context.Context, job models.Job) (toolset.Cursor, error) {
	out, err := s.c.Output(ctx, job.SandboxID, job.ID, providers.OutputQuery{Stream: providers.Stdout, Max: 1})
	return toolset.Cursor{out.Exec.StdoutBytes, out.Exec.StderrBytes}, err
}

// onExec carries out a job on a command.
func (s *Server) onExec(ctx context.Context, c *call, of models.Job, args kind.Args) error {
	job, box, err := s.carry(ctx, c, of.SandboxID, args, patience)
	if err == nil && job.State != models.Succeeded {
		err = s.failure(job, box)
	}
	return err
}

type execStdin struct {
	ExecID string `json:"exec_id" jsonschema:"The exec_id of exec_start"`
	Data   string `json:"data,omitempty" jsonschema:"Text to write, as it is"`
	EOF    bool   `json:"eof,omitempty" jsonschema:"Close the input after data"`
	in
}

func (s *Server) execStdin(ctx context.Context, c *call, a *execStdin) (*answer, error) {
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, anyExec)
	if err == nil {
		err = s.onExec(ctx, c, job, &kind.ExecStdin{ExecRef: kind.ExecRef{ExecID: job.ID}, Data: a.Data, EOF: a.EOF})
	}
	return done(job, "Wrote to command %s."), err
}

type execSignal struct {
	ExecID string `json:"exec_id" jsonschema:"The exec_id of an earlier answer"`
	Signal string `json:"signal" jsonschema:"Such as SIGINT or SIGTERM"`
	in
}

func (s *Server) execSignal(ctx context.Context, c *call, a *execSignal) (*answer, error) {
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, anyExec)
	if err == nil {
		err = s.onExec(ctx, c, job, &kind.ExecSignal{ExecRef: kind.ExecRef{ExecID: job.ID}, Signal: a.Signal})
	}
	return done(job, "Sent the signal to command %s."), err
}

func done(job models.Job, what string) *answer {
	return &answer{Text: fmt.Sprintf(what, job.ID), Fields: map[string]any{"exec_id": job.ID, "sandbox_id": job.SandboxID}}
}
