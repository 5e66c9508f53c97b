package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/calls"
	"sandyard/web/mcp"
)

// addMCP adds the server of agents' tools.
func (s *Server) addMCP(c Config, serve *calls.Calls) {
	tools := mcp.New(mcp.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Calls: serve, Cross: s.cross, Output: s.execOutput, Port: s.portOf, Limits: s.limitsInUse, OnQuit: s.onQuit,
		Lifetime: cmp.Or(c.Calls.MaxTimeout, calls.MaxTimeout), Network: c.E2B == nil || !c.E2B.NoInternet,
		Version: s.version,
	})
	tools.AddRoutes(s.app)
	s.contracts["mcp"] = tools.Document(s.version)
}

// execOutput reads a part of the output of a command that runs in a sandbox of the request's tenant.
func (s *Server) execOutput(ctx context.Context, sandbox, exec string, q providers.OutputQuery) (providers.Output, error) {
	ctx, cancel := s.workers.Bound(ctx, q.Wait)
	defer cancel()
	return s.readOutput(ctx, sandbox, exec, q)
}

// portOf returns how the port is reached that a job has opened.
func (s *Server) portOf(job models.Job) (jobs.PortResult, error) {
	var res jobs.PortResult
	if err := json.Unmarshal(s.withToken(JobResult(job.Result), job.SandboxID), &res); err != nil {
		return res, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return res, nil
}
