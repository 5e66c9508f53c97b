package kind

import (
	"errors"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// Output kept of one stream of a command.
const (
	defaultMaxOutput = 1 << 20
	largestMaxOutput = 8 << 20
)

// Exec runs a command. A program that fails is a job that succeeds: look at the exit code.
type Exec struct {
	Command        string            `json:"command,omitempty" doc:"A command line for bash -c (sh -c without bash); or use argv"`
	Argv           []string          `json:"argv,omitempty" doc:"A program and its arguments, run without a shell; or use command"`
	Env            map[string]string `json:"env,omitempty" doc:"Added to the sandbox's environment"`
	Cwd            string            `json:"cwd,omitempty" doc:"Working directory; default the sandbox's. A leading ~/ means the home directory ($HOME)"`
	User           string            `json:"user,omitempty" doc:"Commands run as the sandbox's unprivileged user; any other name is an error"`
	Stdin          string            `json:"stdin,omitempty" doc:"Written to the command's standard input, which is then closed"`
	StdinEncoding  string            `json:"stdin_encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of stdin in this request; default utf-8"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" doc:"After this time the whole process tree is killed; default 300 (EXEC_TIMEOUT), at most 86400"`
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty" doc:"Most bytes to keep of stdout and of stderr each; default 1 MiB, at most 8 MiB. A background exec drops the oldest output, a normal exec the newest"`
	Merge          bool              `json:"merge,omitempty" doc:"stderr goes to stdout in the order in which the command writes, as after 2>&1; the stderr of the answer is then empty"`
	Background     bool              `json:"background,omitempty" doc:"The job ends when the command has started, and the command continues: see /v1/sandboxes/{id}/execs. It ends with the sandbox at the latest; timeout_seconds then has no default"`
	StdinOpen      bool              `json:"stdin_open,omitempty" doc:"Keep the standard input of a background exec open after stdin, for POST …/stdin"`

	SecretEnv

	blob []byte
}

// ExecResult is what an exec's job says of its command, beside its output.
type ExecResult struct {
	ExitCode        int    `json:"exit_code" doc:"128+n if signal n ended the command"`
	Signal          string `json:"signal,omitempty" doc:"The signal that ended it, such as SIGKILL"`
	TimedOut        bool   `json:"timed_out"`
	OOMKilled       bool   `json:"oom_killed" doc:"The kernel killed a process in the sandbox because memory ran out"`
	StdoutBytes     int64  `json:"stdout_bytes" doc:"Bytes written by the command, including dropped ones"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	DurationMS      int64  `json:"duration_ms" doc:"From start to end inside the sandbox"`
}

// Kind implements Args.
func (e *Exec) Kind() string { return models.KindExec }

// Validate implements Args.
func (e *Exec) Validate() error {
	if (e.Command == "") == (len(e.Argv) == 0) {
		return Invalid("command", "give either command or argv")
	}
	if len(e.Argv) > 0 && e.Argv[0] == "" {
		return Invalid("argv", "the program's name is empty")
	}
	for _, a := range append([]string{e.Command, e.Cwd, e.User}, e.Argv...) {
		if err := NoNUL("command", a); err != nil {
			return err
		}
	}
	if len(e.Cwd) > maxPath {
		return Invalid("cwd", "is %d bytes long; the limit is %d", len(e.Cwd), maxPath)
	}
	if err := CheckNotReserved("cwd", e.Cwd); err != nil {
		return err
	}
	if e.StdinOpen && !e.Background {
		return Invalid("stdin_open", "is only for background execs; set background, or send all input as stdin")
	}
	if e.MaxOutputBytes < 0 || e.MaxOutputBytes > largestMaxOutput {
		return Invalid("max_output_bytes", "must be between 1 and %d, not %d", largestMaxOutput, e.MaxOutputBytes)
	}
	return errors.Join(CheckEnv("env", e.Env), e.Check(e.Env))
}

// Timeout is the command's; 0 = none.
func (e *Exec) Timeout() (time.Duration, error) {
	def := DefaultExecTimeout
	if e.Background {
		def = 0
	}
	return Seconds("timeout_seconds", e.TimeoutSeconds, def, 100*time.Millisecond)
}

// budget is that of the job, which in the background only starts the command.
func (e *Exec) budget() (time.Duration, error) {
	if d, err := e.Timeout(); err != nil || !e.Background {
		return d, err
	}
	return launchTimeout, nil
}

// TakeBlob implements Blobs.
func (e *Exec) TakeBlob() ([]byte, error) {
	b, err := decode("stdin", e.Stdin, e.StdinEncoding)
	e.Stdin, e.StdinEncoding = "", ""
	return b, err
}

func (e *Exec) setBlob(b []byte) { e.blob = b }

// HasInput says whether the command has a standard input.
func (e *Exec) HasInput() bool { return len(e.Stdin)+len(e.blob) > 0 }

// ProviderCommand is what the provider is to run for a job.
func (e *Exec) ProviderCommand(j models.Job) providers.Command {
	limit := e.MaxOutputBytes
	if limit == 0 {
		limit = defaultMaxOutput
	}
	return providers.Command{
		Name: j.ID, Shell: e.Command, Argv: e.Argv, Env: e.Env, Dir: e.Cwd, User: e.User, Stdin: e.blob,
		Timeout: j.Timeout() + j.Paused(), MaxOutput: limit, Merge: e.Merge,
	}
}
