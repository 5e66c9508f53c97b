package jobs

import (
	"context"

	"sandyard/jobs/kind"
	"sandyard/providers"
)

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
	sb, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	in, ok := sb.(providers.Processes)
	if !ok {
		return nil, providers.Errorf(providers.NotSupported, "provider %s does not list processes", a.w.node.Provider)
	}
	return in, nil
}
