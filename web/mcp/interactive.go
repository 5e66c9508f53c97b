package mcp

import (
	"context"
	"fmt"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/problem"
)

type shellInteractive struct {
	Command string            `json:"command,omitempty" jsonschema:"The program to start; default a shell"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"Working directory; default the sandbox's"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"Environment variables for it"`
	in
}

// shell starts the best shell that there is.
const shell = "command -v bash >/dev/null && exec bash; exec sh"

func (s *Server) shellInteractive(ctx context.Context, c *call, a *shellInteractive) (*answer, error) {
	if a.Command == "" {
		a.Command = shell
	}
	return s.startIn(ctx, c, a.Sandbox, &jobs.Exec{Command: a.Command, Cwd: a.Cwd, Env: a.Env, StdinOpen: true})
}

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
	return s.startIn(ctx, c, a.Sandbox, &jobs.Exec{
		Command: a.Command, Argv: a.Argv, Cwd: a.Cwd, Env: a.Env, StdinOpen: a.StdinOpen, TimeoutSeconds: a.Timeout,
	})
}

func (s *Server) startIn(ctx context.Context, c *call, sandbox string, exec *jobs.Exec) (*answer, error) {
	box, err := s.sandbox(ctx, c, sandbox)
	if err != nil {
		return nil, err
	}
	exec.MaxOutputBytes, exec.Merge = keptOutput, true
	return s.launch(ctx, c, box.ID, exec)
}

type execRef struct {
	ExecID string `json:"exec_id,omitempty" jsonschema:"The exec_id of an earlier answer; default: the sandbox's newest one in the background"`
	in
}

type shellView struct {
	execRef
	Cursor string `json:"cursor,omitempty" jsonschema:"The cursor of the last answer; default: the end of the output"`
}

func (s *Server) shellView(ctx context.Context, c *call, a *shellView) (*answer, error) {
	from, err := readCursor(a.Cursor)
	if err != nil {
		return nil, err
	}
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, inBackground)
	if err != nil {
		return nil, err
	}
	if a.Cursor == "" && inBackground(job) {
		if from, err = s.written(ctx, job); err != nil {
			return nil, err
		}
		from = cursor{max(0, from[0]-maxTail), max(0, from[1]-maxTail)}
	}
	return s.execNow(ctx, c, job, from, 0)
}

// written is the cursor behind all that a background command has written so far.
func (s *Server) written(ctx context.Context, job models.Job) (cursor, error) {
	out, err := s.c.Output(ctx, job.SandboxID, job.ID, providers.OutputQuery{Stream: providers.Stdout, Max: 1})
	return cursor{out.Exec.StdoutBytes, out.Exec.StderrBytes}, err
}

type shellWrite struct {
	execRef
	Input      string  `json:"input" jsonschema:"What to write"`
	PressEnter *bool   `json:"press_enter,omitempty" jsonschema:"Add a line feed; default true"`
	Wait       float64 `json:"wait,omitempty" jsonschema:"Seconds to wait for output that answers it; default 2, at most 20"`
}

// answerWait is how long an interactive program has to answer, where the call does not say.
const answerWait = 2

func (s *Server) shellWrite(ctx context.Context, c *call, a *shellWrite) (*answer, error) {
	if a.PressEnter == nil || *a.PressEnter {
		a.Input += "\n"
	}
	if a.Wait == 0 {
		a.Wait = answerWait
	}
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, inBackground)
	if err != nil {
		return nil, err
	}
	if !inBackground(job) {
		return nil, problem.New(422, "no_input", "this command takes no input; start one with shell_interactive")
	}
	from, err := s.written(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := s.onExec(ctx, c, job, &jobs.ExecStdin{ExecRef: jobs.ExecRef{ExecID: job.ID}, Data: a.Input}); err != nil {
		return nil, err
	}
	return s.follower(ctx, c, job, from, waitOf(a.Wait))
}

// onExec carries out a job on a command.
func (s *Server) onExec(ctx context.Context, c *call, of models.Job, args jobs.Args) error {
	job, box, err := s.carry(ctx, c, of.SandboxID, args, patience)
	if err == nil && job.State != models.Succeeded {
		err = s.failure(job, box)
	}
	return err
}

func (s *Server) shellKill(ctx context.Context, c *call, a *execRef) (*answer, error) {
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, inBackground)
	if err != nil {
		return nil, err
	}
	if inBackground(job) {
		err = s.onExec(ctx, c, job, &jobs.ExecDelete{ExecRef: jobs.ExecRef{ExecID: job.ID}})
	} else {
		_, err = s.stop(ctx, job.ID)
	}
	return done(job, "Killed command %s with all its processes."), err
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
		err = s.onExec(ctx, c, job, &jobs.ExecStdin{ExecRef: jobs.ExecRef{ExecID: job.ID}, Data: a.Data, EOF: a.EOF})
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
		err = s.onExec(ctx, c, job, &jobs.ExecSignal{ExecRef: jobs.ExecRef{ExecID: job.ID}, Signal: a.Signal})
	}
	return done(job, "Sent the signal to command %s."), err
}

func done(job models.Job, what string) *answer {
	return &answer{text: fmt.Sprintf(what, job.ID), fields: map[string]any{"exec_id": job.ID, "sandbox_id": job.SandboxID}}
}
