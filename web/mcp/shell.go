package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	// commandTimeout is how long a command may run where the call does not say.
	commandTimeout = time.Hour
	// keptOutput is what is kept of each output of a command, in bytes.
	keptOutput = 8 << 20
)

type shellExec struct {
	Command    string            `json:"command" jsonschema:"A command line for bash"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"Working directory; default the sandbox's"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"Environment variables for this command"`
	Timeout    float64           `json:"timeout,omitempty" jsonschema:"Seconds until the command is killed; default 3600"`
	Wait       float64           `json:"wait,omitempty" jsonschema:"Seconds to wait for its end before the answer is running=true; default and most 20"`
	Background bool              `json:"background,omitempty" jsonschema:"Start the command and do not wait for it, as for a server"`
	in
}

func (s *Server) shellExec(ctx context.Context, c *call, a *shellExec) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	exec := &jobs.Exec{Command: a.Command, Cwd: a.Cwd, Env: a.Env, TimeoutSeconds: a.Timeout, MaxOutputBytes: keptOutput, Merge: true}
	if a.Background {
		return s.launch(ctx, c, box.ID, exec)
	}
	if exec.TimeoutSeconds == 0 {
		exec.TimeoutSeconds = commandTimeout.Seconds()
	}
	r, err := s.command(ctx, c, box.ID, exec, waitOf(a.Wait))
	if err != nil {
		return nil, err
	}
	return r.answer(), nil
}

// launch starts a command that nobody waits for.
func (s *Server) launch(ctx context.Context, c *call, sandbox string, exec *jobs.Exec) (*answer, error) {
	exec.Background = true
	job, box, err := s.carry(ctx, c, sandbox, exec, patience)
	if err != nil {
		return nil, err
	}
	if job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	r := &ran{ExecID: job.ID, SandboxID: job.SandboxID, Running: true, Cursor: cursor{}.String()}
	return &answer{text: fmt.Sprintf("The command runs in the background as %s. shell_wait with this exec_id shows its output.", job.ID), fields: r}, nil
}

type shellWait struct {
	ExecID  string  `json:"exec_id,omitempty" jsonschema:"The exec_id of an earlier answer; default: the sandbox's newest command"`
	Cursor  string  `json:"cursor,omitempty" jsonschema:"The cursor of the last answer: output after it is returned; default all"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"How long to wait for the command's end; default and most 20"`
	in
}

func (s *Server) shellWait(ctx context.Context, c *call, a *shellWait) (*answer, error) {
	from, err := readCursor(a.Cursor)
	if err != nil {
		return nil, err
	}
	wait := waitOf(a.Seconds)
	job, err := s.execJob(ctx, c, a.ExecID, a.Sandbox, anyExec)
	if err != nil {
		return nil, err
	}
	return s.execNow(ctx, c, job, from, wait)
}

// execNow is how a command stands, at its end or after the wait.
func (s *Server) execNow(ctx context.Context, c *call, job models.Job, from cursor, wait time.Duration) (*answer, error) {
	if inBackground(job) {
		return s.follower(ctx, c, job, from, wait)
	}
	job, box, err := s.follow(ctx, c, job.ID, wait)
	if err != nil {
		return nil, err
	}
	if !job.State.Terminal() {
		r, err := s.partOf(ctx, job, from)
		if err != nil {
			return nil, err
		}
		return r.answer(), nil
	}
	return s.outcome(ctx, job, box, from)
}

// outcome is the answer about a command or a cell that has ended.
func (s *Server) outcome(ctx context.Context, job models.Job, box models.Sandbox, from cursor) (*answer, error) {
	if job.Kind == models.KindCode {
		return s.cellEnded(ctx, job, box, from)
	}
	r, err := s.ended(ctx, job, box, from)
	if err != nil {
		return nil, err
	}
	return r.answer(), nil
}

// follower reads on in the output of a background command. The sandbox knows how that stands, its job only that it has begun.
func (s *Server) follower(ctx context.Context, c *call, job models.Job, from cursor, wait time.Duration) (*answer, error) {
	leave, err := s.mw.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := &ran{ExecID: job.ID, SandboxID: job.SandboxID}
	var parts [2]piece
	for i, stream := range []providers.Stream{providers.Stdout, providers.Stderr} {
		q := providers.OutputQuery{Stream: stream, Offset: from[i], Max: maxHead}
		if i == 0 {
			q.Wait = max(0, min(wait, patience-time.Since(c.began)))
		}
		out, err := s.c.Output(ctx, job.SandboxID, job.ID, q)
		if err != nil {
			return nil, err
		}
		e := out.Exec
		total := [2]int64{e.StdoutBytes, e.StderrBytes}[i]
		parts[i] = piece{begin: out.Begin, total: total, data: out.Data, last: !e.Running && out.Begin+int64(len(out.Data)) >= total}
		r.Running, r.ExitCode, r.Signal, r.TimedOut, r.OOMKilled, r.DurationMS = e.Running, e.ExitCode, e.Signal, e.TimedOut, e.OOMKilled, e.DurationMS
		r.Dropped += max(0, out.Begin-from[i])
	}
	r.fill(from, parts[0], parts[1])
	return r.answer(), nil
}

// inBackground says whether the job has only started its command.
func inBackground(job models.Job) bool {
	var started jobs.BackgroundResult
	return job.Kind == models.KindExec && job.State == models.Succeeded && json.Unmarshal(job.Result, &started) == nil && started.ExecID != ""
}

// anyExec and onlyBackground say which command is meant where none is named.
func anyExec(models.Job) bool { return true }

// execJob returns the job of a command: of the one that is named, or of the newest one in the sandbox that fits.
func (s *Server) execJob(ctx context.Context, c *call, id, sandbox string, fits func(models.Job) bool) (models.Job, error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if id != "" {
		job, err := s.c.Store.Job(ctx, tenant, id)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return job, err
		}
		if err != nil || !models.IsProgram(job.Kind) || sandbox != "" && sandbox != job.SandboxID {
			return job, noExec(fmt.Sprintf("there is no command %q of this API key; use the exec_id of an earlier answer", id))
		}
		return job, nil
	}
	box, err := s.sandbox(ctx, c, sandbox)
	if err != nil {
		return models.Job{}, err
	}
	list, err := s.c.Store.Jobs(ctx, tenant, models.JobFilter{Sandbox: box.ID, Kind: models.KindExec, Limit: lookedThrough})
	if err != nil {
		return models.Job{}, err
	}
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return s.c.Store.Job(ctx, tenant, list[i].ID)
	}
	return models.Job{}, noExec("there is no such command in the sandbox; start one, or give exec_id")
}

// lookedThrough is among how many jobs the newest command is looked for.
const lookedThrough = 50

func noExec(why string) error { return problem.New(http.StatusNotFound, "exec_not_found", why) }
