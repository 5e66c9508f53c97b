package providers

import "context"

// Processes is implemented by sandboxes that tell of every process in them.
type Processes interface {
	// Processes lists them by their ids, but for the platform's own.
	Processes(ctx context.Context) (ProcessList, error)
	// SignalProcess sends a signal to one of them, once for each id. Error: NoProcess, FileDenied.
	SignalProcess(ctx context.Context, s ProcessSignal) error
}

// ProcessSignal is a signal for one process.
type ProcessSignal struct {
	ID     string // of the call
	Pid    int
	Start  int64  // must be that of the process; 0 = whatever process has the id
	Signal string // such as SIGTERM
}

// ProcessList is what runs in a sandbox.
type ProcessList struct {
	Processes []Process `json:"processes" doc:"Sorted by pid"`
	Total     int       `json:"total" doc:"Of all processes; at most 1000 are listed"`
}

// Process is one process. Its ids are those inside the sandbox.
type Process struct {
	Pid     int    `json:"pid"`
	Parent  int    `json:"parent"`
	Start   int64  `json:"start" doc:"Start time in kernel ticks; pid and start together name the process"`
	ExecID  string `json:"exec_id,omitempty" doc:"The running exec that it belongs to, named as in …/execs"`
	State   string `json:"state" doc:"A letter as in /proc: R runs, S and D wait, T is stopped, Z has ended"`
	Threads int    `json:"threads"`
	RSSKB   int64  `json:"rss_kb" doc:"Resident memory in KiB"`
	CPUMS   int64  `json:"cpu_ms" doc:"CPU time used so far"`
	AgeMS   int64  `json:"age_ms" doc:"Time since its start"`
	Command string `json:"command" doc:"Arguments, at most 512 bytes; the name in brackets if they cannot be seen"`
}
