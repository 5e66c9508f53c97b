package envd

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

// maxProcesses bounds the list that is taken from a guest.
const maxProcesses = 1000

var _ providers.Processes = (*Sandbox)(nil)

// Processes is providers.Processes.Processes.
func (s *Sandbox) Processes(ctx context.Context) (providers.ProcessList, error) {
	var told protocol.ProcessList
	if err := s.tool(ctx, http.MethodGet, protocol.ProcessesPath, nil, &told); err != nil {
		return providers.ProcessList{}, err
	}
	list := providers.ProcessList{Processes: []providers.Process{}, Total: max(told.Total, len(told.Processes))}
	for _, p := range told.Processes[:min(len(told.Processes), maxProcesses)] {
		one := providers.Process{
			Pid: max(p.Pid, 0), Parent: max(p.Parent, 0), Start: max(p.Start, 0),
			State: clean(p.State), Command: clean(p.Command),
			Threads: max(p.Threads, 0), RSSKB: max(p.RSSKB, 0), CPUMS: max(p.CPUMs, 0), AgeMS: max(p.AgeMs, 0),
		}
		if protocol.ValidName(p.Exec) {
			one.ExecID = p.Exec
		}
		list.Processes = append(list.Processes, one)
	}
	return list, nil
}

// SignalProcess is providers.Processes.SignalProcess.
func (s *Sandbox) SignalProcess(ctx context.Context, signal providers.ProcessSignal) error {
	query := url.Values{"id": {signal.ID}, "signal": {signal.Signal}, "start": {strconv.FormatInt(signal.Start, 10)}}
	target := protocol.ProcessesPath + "/" + strconv.Itoa(signal.Pid) + "/signal?" + query.Encode()
	return s.call(ctx, http.MethodPost, target, nil, nil, 0)
}
