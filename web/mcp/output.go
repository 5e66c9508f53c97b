package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
	"sandyard/web/calls"
	"sandyard/web/problem"
)

// command runs a command as the job of a call. One that takes longer than the call goes on.
func (s *Server) command(
	ctx context.Context,
	c *call,
	sandboxID string,
	exec *kind.Exec,
	wait time.Duration,
) (*toolset.Ran, error) {
	job, box, err := s.carry(ctx, c, sandboxID, exec, wait)
	if goes, ok := errors.AsType[*running](err); ok {
		return s.partOf(ctx, goes.job, toolset.Cursor{}), nil
	}
	if err != nil {
		return nil, err
	}
	return s.ended(ctx, job, box, toolset.Cursor{})
}

// partOf is how a command stands whose job has not ended.
func (s *Server) partOf(ctx context.Context, job models.Job, from toolset.Cursor) *toolset.Ran {
	r := &toolset.Ran{ExecID: job.ID, SandboxID: job.SandboxID, Running: true}
	var parts [2]toolset.Piece
	for i, stream := range []providers.Stream{providers.Stdout, providers.Stderr} {
		out, err := s.c.Output(
			ctx,
			job.SandboxID,
			job.ID,
			providers.OutputQuery{Stream: stream, Offset: from[i], Max: toolset.MaxHead},
		)
		if err != nil { // it has not begun, or its worker is just being replaced: what it has written is there next time
			parts[i] = toolset.Piece{Begin: from[i], Total: from[i]}
			continue
		}
		parts[i] = toolset.Piece{
			Begin: out.Begin,
			Total: [2]int64{out.Exec.StdoutBytes, out.Exec.StderrBytes}[i],
			Data:  out.Data,
		}
		r.DurationMS = out.Exec.DurationMS
	}
	r.Fill(from, parts[0], parts[1])
	return r
}

// ended is how a command or a cell ended.
func (s *Server) ended(
	ctx context.Context,
	job models.Job,
	box models.Sandbox,
	from toolset.Cursor,
) (*toolset.Ran, error) {
	if job.State != models.Succeeded && job.State != models.TimedOut || len(job.Result) == 0 && job.Unread == 0 {
		return nil, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult); err != nil {
		return nil, err
	}
	var res kind.ExecResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return nil, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	r := &toolset.Ran{
		ExecID:     job.ID,
		SandboxID:  job.SandboxID,
		Signal:     res.Signal,
		TimedOut:   job.State == models.TimedOut,
		OOMKilled:  res.OOMKilled,
		DurationMS: res.DurationMS,
	}
	if job.Kind == models.KindExec && !r.TimedOut {
		r.ExitCode = &res.ExitCode
	}
	out, errs := kept(job, job.Stdout, res.StdoutBytes), kept(job, job.Stderr, res.StderrBytes)
	r.Dropped = out.Total + errs.Total - int64(len(out.Data)+len(errs.Data))
	r.Fill(from, out, errs)
	return r, nil
}

// kept is what a job has of an output: of a command the beginning, of a cell the end.
func kept(job models.Job, data []byte, total int64) toolset.Piece {
	p := toolset.Piece{Total: total, Data: data, Last: true}
	if job.Kind == models.KindCode {
		p.Begin = total - int64(len(data))
	}
	return p
}

// failure is the error of a job that has not succeeded.
func (s *Server) failure(job models.Job, box models.Sandbox) error {
	if job.State == models.Cancelled && box.State == models.SandboxFailed {
		why := "see its create job"
		if box.EndReason != nil {
			why = *box.EndReason
		}
		return problem.New(409, "sandbox_failed", "the sandbox could not be made: "+why)
	}
	return calls.Failure(job, box)
}
