package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// launch starts a command that nobody waits for.
func (s *Server) launch(ctx context.Context, c *call, sandboxID string, exec *kind.Exec) (*toolset.Ran, error) {
	exec.Background = true
	job, box, err := s.carry(ctx, c, sandboxID, exec, patience)
	if err != nil {
		return nil, err
	}
	if job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	return &toolset.Ran{ExecID: job.ID, SandboxID: job.SandboxID, Running: true, Cursor: toolset.Cursor{}.String()}, nil
}

// execNow is how a command stands, at its end or after the wait.
func (s *Server) execNow(
	ctx context.Context,
	c *call,
	job models.Job,
	from toolset.Cursor,
	wait time.Duration,
) (*answer, error) {
	if inBackground(job) {
		return s.follower(ctx, c, job, from, wait)
	}
	job, box, err := s.follow(ctx, c, job.ID, wait)
	if err != nil {
		return nil, err
	}
	if !job.State.Terminal() {
		return s.partOf(ctx, job, from).Answer(), nil
	}
	return s.outcome(ctx, job, box, from)
}

// outcome is the answer about a command or a cell that has ended.
func (s *Server) outcome(
	ctx context.Context,
	job models.Job,
	box models.Sandbox,
	from toolset.Cursor,
) (*answer, error) {
	if job.Kind == models.KindCode {
		return s.cellEnded(ctx, job, box, from)
	}
	return toolset.Told(s.ended(ctx, job, box, from))
}

// follower reads on in the output of a background command. The sandbox knows how that stands, its job only that it has
// begun.
func (s *Server) follower(
	ctx context.Context,
	c *call,
	job models.Job,
	from toolset.Cursor,
	wait time.Duration,
) (*answer, error) {
	leave, err := s.mw.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := &toolset.Ran{ExecID: job.ID, SandboxID: job.SandboxID}
	wait = max(0, min(wait, patience-time.Since(c.began)))
	err = r.Follow(from, wait, func(q providers.OutputQuery) (providers.Output, error) {
		q.Max = toolset.MaxHead
		return s.c.Output(ctx, job.SandboxID, job.ID, q)
	})
	if err != nil {
		return nil, err
	}
	return r.Answer(), nil
}

// inBackground says whether the job has only started its command.
func inBackground(job models.Job) bool {
	var started kind.BackgroundResult
	return job.Kind == models.KindExec && job.State == models.Succeeded && json.Unmarshal(job.Result, &started) == nil &&
		started.ExecID != ""
}

// anyExec and onlyBackground say which command is meant where none is named.
func anyExec(models.Job) bool { return true }

// execJob returns the job of a command: of the one that is named, or of the newest one in the sandbox that fits.
func (s *Server) execJob(
	ctx context.Context,
	c *call,
	id, sandboxID string,
	fits func(models.Job) bool,
) (models.Job, error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if id != "" {
		job, err := s.c.Store.Job(ctx, tenant, id)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return job, err
		}
		if err != nil || !models.IsProgram(job.Kind) || sandboxID != "" && sandboxID != job.SandboxID {
			return job, noExec(fmt.Sprintf("there is no command %q of this API key; use the exec_id of an earlier answer", id))
		}
		return job, nil
	}
	box, err := s.sandbox(ctx, c, sandboxID)
	if err != nil {
		return models.Job{}, err
	}
	list, err := s.c.Store.Jobs(
		ctx,
		tenant,
		models.JobFilter{Sandbox: box.ID, Kind: models.KindExec, Limit: lookedThrough},
	)
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
