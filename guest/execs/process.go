package execs

import (
	"errors"
	"syscall"

	"sandyard/guest/protocol"
)

// maxProcesses bounds one list of processes.
const maxProcesses = 1000

// Processes lists all processes of all commands.
func (r *Registry) Processes() protocol.ProcessList {
	names := map[int]string{} // of commands, by their supervisors
	for _, e := range r.Live() {
		if e.proc != nil && e.Command.Name != "" {
			names[e.proc.Supervisor()] = e.Command.Name
		}
	}
	found, total := r.host.Processes(maxProcesses)
	list := protocol.ProcessList{Processes: make([]protocol.Process, 0, len(found)), Total: total}
	for _, i := range found {
		list.Processes = append(list.Processes, protocol.Process{
			Pid: i.Pid, Parent: i.Parent, Start: i.Start, State: i.State, Threads: i.Threads, RSSKB: i.RSS >> 10,
			CPUMs: i.CPU.Milliseconds(), AgeMs: i.Age.Milliseconds(), Command: i.Command, Exec: names[i.Supervisor],
		})
	}
	return list
}

// SignalProcess sends a signal to one process, unless one of this id was sent before. A start other than 0 must be that
// of the process.
func (r *Registry) SignalProcess(id string, pid int, start int64, s syscall.Signal) error {
	r.signalling.Lock()
	defer r.signalling.Unlock()
	if r.signals.has(id) {
		return nil
	}
	switch err := r.host.SignalOne(pid, start, s); {
	case errors.Is(err, syscall.ESRCH):
		return protocol.Errorf(
			protocol.ReasonNoProcess,
			"there is no process %d, or it is another one by now; list them again",
			pid,
		)
	case errors.Is(err, syscall.EPERM):
		return protocol.Errorf(protocol.ReasonDenied, "process %d may not be sent a signal", pid)
	case err != nil:
		return err
	}
	r.signals.add(id)
	return nil
}
