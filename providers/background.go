package providers

import (
	"context"
	"time"
)

// Background is implemented by sandboxes that keep commands running which nobody waits for. Such a command is named like
// any other, and its name is started at most once; Kill and Forget are those of Commands. Of its output the end is
// kept, not the beginning. An unknown name answers ErrNoExec.
type Background interface {
	// Launch starts cmd and returns once it runs, or returns the command of that name as it is now. The sandbox itself
	// keeps cmd.Timeout, on a clock that goes on during a pause. Too many at once answer TooManyExecs.
	Launch(ctx context.Context, cmd Command) (Exec, error)
	// Execs lists the background commands that were not forgotten, oldest first.
	Execs(ctx context.Context) ([]Exec, error)
	// Exec returns the command at its end, or as it is after wait.
	Exec(ctx context.Context, name string, wait time.Duration) (Exec, error)
	// Output returns bytes of the command's output. It waits for the first of them up to q.Wait.
	Output(ctx context.Context, name string, q OutputQuery) (Output, error)
	// Feed appends to the input of a command that was launched with StdinOpen. A call repeated with the same ID does not
	// write a byte twice. A command that has ended answers ExecEnded, unless it has taken this input before; one that does
	// not read answers Busy.
	Feed(ctx context.Context, name string, in Input) (Fed, error)
	// Settle takes in all output that the command has written by now; of the input of this id, which was Fresh, that is
	// the end. An id that is not known any more answers ErrNoExec.
	Settle(ctx context.Context, name, id string) (Fed, error)
	// Signal sends a signal such as SIGINT to the command's process group, once for each id. A command that has ended
	// answers ExecEnded.
	Signal(ctx context.Context, name, id, signal string) error
}

// Exec is a command as it stands.
type Exec struct {
	ID          string `json:"id" doc:"The id of the job that started it; for a terminal, term_ and its name"`
	Running     bool   `json:"running"`
	Queued      bool   `json:"queued,omitempty" doc:"The exec's job has not started it yet"`
	Terminal    bool   `json:"terminal,omitempty" doc:"The exec runs on a terminal"`
	Pid         int    `json:"pid,omitempty" doc:"Inside the sandbox"`
	ExitCode    *int   `json:"exit_code,omitempty" doc:"Present after its end; 128+n if signal n ended it"`
	Signal      string `json:"signal,omitempty" doc:"The signal that ended it, such as SIGKILL"`
	TimedOut    bool   `json:"timed_out,omitempty"`
	OOMKilled   bool   `json:"oom_killed,omitempty" doc:"The kernel killed a process in the sandbox because memory ran out"`
	StdoutBytes int64  `json:"stdout_bytes" doc:"Bytes written so far, including dropped ones"`
	StderrBytes int64  `json:"stderr_bytes"`
	DurationMS  int64  `json:"duration_ms" doc:"From its start to its end, or to now"`
	AgeMS       int64  `json:"age_ms" doc:"Time since its start"`
}

// Stream is one output of a command.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	Report // descriptor 3, of a command launched with it
)

// OutputQuery says which bytes of an output are wanted.
type OutputQuery struct {
	Stream Stream
	Offset int64
	Max    int // at most; 0 = what the sandbox likes to give at once
	Wait   time.Duration
}

// Output is a piece of a command's output.
type Output struct {
	Exec  Exec
	Begin int64 // offset of the first byte: later than asked for where older bytes are not kept any more
	Data  []byte
}

// Input is bytes for a command's standard input.
type Input struct {
	ID   string // names the call
	Data []byte
	EOF  bool // the input ends behind Data
	// Fresh drops the output that was written before, back to that of a fresh input which was not settled.
	Fresh bool
	Wait  time.Duration // for a command that does not read; 0 = some seconds
}

// Fed is what a Feed or a Settle did.
type Fed struct {
	Age    time.Duration // since the first call with this ID
	Before [3]int64      // what the command had written of each stream by then
	After  [3]int64      // the same when it was settled
}
