package mcp

import (
	"context"
	"fmt"
	"strings"

	"sandyard/jobs"
	"sandyard/providers"
)

// maxShown is how many processes an answer has.
const maxShown = 200

func (s *Server) processList(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	var list providers.ProcessList
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.ListProcesses{}, &list)
	if err != nil {
		return nil, err
	}
	shown := list.Processes[:min(len(list.Processes), maxShown)]
	var b strings.Builder
	b.WriteString("PID\tPARENT\tSTATE\tTHREADS\tRSS_KB\tCPU_MS\tCOMMAND\n")
	for _, p := range shown {
		fmt.Fprintf(&b, "%d\t%d\t%s\t%d\t%d\t%d\t%s\n", p.Pid, p.Parent, p.State, p.Threads, p.RSSKB, p.CPUMS, p.Command)
	}
	cut := len(shown) < list.Total
	if cut {
		fmt.Fprintf(&b, "[%d of %d processes are shown; POST /v1/sandboxes/%s/processes lists more]\n",
			len(shown), list.Total, job.SandboxID)
	}
	return &answer{text: b.String(), fields: map[string]any{
		"processes": shown, "total": list.Total, "truncated": cut, "sandbox_id": job.SandboxID,
	}}, nil
}

type processSignal struct {
	Pid    int    `json:"pid" jsonschema:"The pid that process_list shows"`
	Signal string `json:"signal,omitempty" jsonschema:"Such as SIGINT or SIGKILL; default SIGTERM"`
	Start  int64  `json:"start,omitempty" jsonschema:"The start that process_list shows: a later process with this pid is then left alone"`
	in
}

func (s *Server) processSignal(ctx context.Context, c *call, a *processSignal) (*answer, error) {
	if a.Signal == "" {
		a.Signal = "SIGTERM"
	}
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.SignalProcess{Pid: a.Pid, Start: a.Start, Signal: a.Signal}, nil)
	if err != nil {
		return nil, err
	}
	return &answer{
		text:   fmt.Sprintf("Sent %s to process %d.", a.Signal, a.Pid),
		fields: map[string]any{"pid": a.Pid, "signal": a.Signal, "sandbox_id": job.SandboxID},
	}, nil
}
