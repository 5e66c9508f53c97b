package protocol

// The calls about commands that run in the background, below ExecsPath and the command's name:
//
//	GET ExecsPath?background=1 lists them, but for those that were forgotten
//	POST ""         starts it: Launch → ExecInfo. A name that was started before answers with what it is now
//	GET  ""         ExecInfo at its end, or after the parameter wait_ms
//	GET  "/output"  bytes of the stream (0, 1 or 2) from offset on, at most max; waits wait_ms for the first of them
//	POST "/feed"    appends the body to its input: → Fed. The parameter id makes a repeated call harmless. With fresh=1
//	                the output before it is dropped, back to that of an input which is not settled
//	POST "/settle"  takes in what the command has written by now, and ends the output of the input of that id: → Fed
//	POST "/signal"  sends the signal of that name to its process group; the parameter id as above
//	GET  "/tail"    streams what is kept of its stdout from offset on, and then what comes. For as long as the call lasts
//	                the command waits for its reader. It ends with the command, or where bytes are missing
//	POST "/resize"  gives its terminal a size: the parameters cols and rows

// Launch is a command to start in the background. It has no listener: the end of its output is kept.
type Launch struct {
	Shell     string            `json:"shell,omitempty"` // or Argv
	Argv      []string          `json:"argv,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Dir       string            `json:"dir,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"`      // false = /dev/null
	Report    bool              `json:"report,omitempty"`     // descriptor 3 is a third output
	Merge     bool              `json:"merge,omitempty"`      // stderr is stdout
	MaxOutput int64             `json:"max_output,omitempty"` // bytes kept of each stream
	TimeoutMs int64             `json:"timeout_ms,omitempty"` // 0 = none
	Terminal  *Size             `json:"terminal,omitempty"`   // it runs on a terminal, in place of pipes
	Anew      bool              `json:"anew,omitempty"`       // one of that name that has ended makes room
}

// Size is that of a terminal, in characters.
type Size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Fed says what became of an input, and how much the command had written when its first byte came, and when it was
// settled.
type Fed struct {
	Bytes  int64    `json:"bytes"`
	AgeMs  int64    `json:"age_ms"` // since the first call with this id
	Before [3]int64 `json:"before"` // of stdout, stderr and the report
	After  [3]int64 `json:"after"`
}

// ProcessList is the answer of GET ProcessesPath: processes by their ids, but for the guest itself and its supervisors.
// POST ProcessesPath/{pid}/signal sends one of them the signal of that name; the parameter id makes a repeated call
// harmless, and start must be that of the process where it is given.
type ProcessList struct {
	Processes []Process `json:"processes"`
	Total     int       `json:"total"` // more than are listed where there are too many
}

// Process is one process of a command.
type Process struct {
	Pid     int    `json:"pid"`
	Parent  int    `json:"parent"`
	Start   int64  `json:"start"` // with pid it names the process
	State   string `json:"state"` // as in /proc
	Threads int    `json:"threads"`
	RSSKB   int64  `json:"rss_kb"`
	CPUMs   int64  `json:"cpu_ms"`
	AgeMs   int64  `json:"age_ms"`
	Command string `json:"command"`        // its arguments, or its name in brackets
	Exec    string `json:"exec,omitempty"` // the name of the command that it belongs to
}

// Headers of an answer with output.
const (
	OffsetHeader = "Sandyard-Offset" // of the body's first byte: later than asked for where older ones are not kept
	InfoHeader   = "Sandyard-Info"   // ExecInfo as JSON
)

// Reasons of these calls.
const (
	ReasonTooMany = "too_many_execs"
	ReasonEnded   = "exec_ended"
)
