package jobs

import (
	"context"
	"slices"
	"strings"

	"sandyard/providers"
)

// Kinds of job about single processes.
const (
	kindProcessList   = "process_list"
	kindProcessSignal = "process_signal"
)

// ListProcesses lists the processes of a sandbox.
type ListProcesses struct{}

// Kind implements Args.
func (*ListProcesses) Kind() string { return kindProcessList }

// Validate implements Args.
func (*ListProcesses) Validate() error { return nil }

func (*ListProcesses) run(ctx context.Context, a *attempt) (result, error) {
	in, err := a.processes(ctx)
	if err != nil {
		return result{}, err
	}
	list, err := in.Processes(ctx)
	for i, p := range list.Processes {
		if _, err := (ExecRef{p.ExecID}).name(); err != nil { // the platform's own, such as a code context
			list.Processes[i].ExecID = ""
		}
	}
	return result{value: list}, err
}

// SignalProcess sends a signal to one process of a sandbox.
type SignalProcess struct {
	Pid    int    `json:"pid" minimum:"2" maximum:"4194304" doc:"Inside the sandbox"`
	Start  int64  `json:"start,omitempty" minimum:"0" doc:"The process's start in the list: another process with this pid is then left alone"`
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGKILL; the prefix SIG is optional"`
}

// Kind implements Args.
func (*SignalProcess) Kind() string { return kindProcessSignal }

// maxPid is Linux's.
const maxPid = 1 << 22

// Validate implements Args.
func (s *SignalProcess) Validate() error {
	if s.Pid < 2 || s.Pid > maxPid {
		return invalid("pid", "must be between 2 and %d, not %d; POST …/processes lists the processes", maxPid, s.Pid)
	}
	if s.Start < 0 {
		return invalid("start", "must be the start of the process in the list of processes, not %d", s.Start)
	}
	return checkSignal(s.Signal)
}

func (s *SignalProcess) run(ctx context.Context, a *attempt) (result, error) {
	in, err := a.processes(ctx)
	if err != nil {
		return result{}, err
	}
	return result{}, in.SignalProcess(ctx, providers.ProcessSignal{
		ID: a.job.ID, Pid: s.Pid, Start: s.Start, Signal: signalName(s.Signal),
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

func signals() []string {
	return []string{
		"SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCONT", "SIGSTOP",
		"SIGTSTP", "SIGWINCH",
	}
}

func checkSignal(given string) error {
	if !slices.Contains(signals(), signalName(given)) {
		return invalid("signal", "%q is not supported; use one of %s", given, strings.Join(signals(), ", "))
	}
	return nil
}

// signalName is a signal's full name.
func signalName(given string) string {
	name := strings.ToUpper(given)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}
