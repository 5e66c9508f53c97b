package kind

import (
	"slices"
	"strings"
)

// Kinds of job about single processes.
const (
	NameProcessList   = "process_list"
	NameProcessSignal = "process_signal"
)

// ListProcesses lists the processes of a sandbox.
type ListProcesses struct{}

// Kind implements Args.
func (*ListProcesses) Kind() string { return NameProcessList }

// Validate implements Args.
func (*ListProcesses) Validate() error { return nil }

// SignalProcess sends a signal to one process of a sandbox.
type SignalProcess struct {
	Pid    int    `json:"pid" minimum:"2" maximum:"4194304" doc:"Inside the sandbox"`
	Start  int64  `json:"start,omitempty" minimum:"0" doc:"The process's start in the list: another process with this pid is then left alone"`
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGKILL; the prefix SIG is optional"`
}

// Kind implements Args.
func (*SignalProcess) Kind() string { return NameProcessSignal }

// maxPid is Linux's.
const maxPid = 1 << 22

// Validate implements Args.
func (s *SignalProcess) Validate() error {
	if s.Pid < 2 || s.Pid > maxPid {
		return Invalid("pid", "must be between 2 and %d, not %d; POST …/processes lists the processes", maxPid, s.Pid)
	}
	if s.Start < 0 {
		return Invalid("start", "must be the start of the process in the list of processes, not %d", s.Start)
	}
	return checkSignal(s.Signal)
}

func signals() []string {
	return []string{
		"SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCONT", "SIGSTOP",
		"SIGTSTP", "SIGWINCH",
	}
}

func checkSignal(given string) error {
	if !slices.Contains(signals(), SignalName(given)) {
		return Invalid("signal", "%q is not supported; use one of %s", given, strings.Join(signals(), ", "))
	}
	return nil
}

// SignalName is a signal's full name.
func SignalName(given string) string {
	name := strings.ToUpper(given)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}
