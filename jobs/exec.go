package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
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
		return invalid("command", "give either command or argv")
	}
	if len(e.Argv) > 0 && e.Argv[0] == "" {
		return invalid("argv", "the program's name is empty")
	}
	for _, a := range append([]string{e.Command, e.Cwd, e.User}, e.Argv...) {
		if err := noNUL("command", a); err != nil {
			return err
		}
	}
	if len(e.Cwd) > maxPath {
		return invalid("cwd", "is %d bytes long; the limit is %d", len(e.Cwd), maxPath)
	}
	if err := checkNotReserved("cwd", e.Cwd); err != nil {
		return err
	}
	if e.StdinOpen && !e.Background {
		return invalid("stdin_open", "is only for background execs; set background, or send all input as stdin")
	}
	if e.MaxOutputBytes < 0 || e.MaxOutputBytes > largestMaxOutput {
		return invalid("max_output_bytes", "must be between 1 and %d, not %d", largestMaxOutput, e.MaxOutputBytes)
	}
	return errors.Join(checkEnv("env", e.Env), e.check(e.Env))
}

// timeout is the command's; 0 = none.
func (e *Exec) timeout() (time.Duration, error) {
	def := DefaultExecTimeout
	if e.Background {
		def = 0
	}
	return seconds("timeout_seconds", e.TimeoutSeconds, def, 100*time.Millisecond)
}

func (e *Exec) takeBlob() ([]byte, error) {
	b, err := decode("stdin", e.Stdin, e.StdinEncoding)
	e.Stdin, e.StdinEncoding = "", ""
	return b, err
}

func (e *Exec) setBlob(b []byte) { e.blob = b }

// run attaches where an earlier attempt has started the command already. A cancel kills the command and so ends Run;
// losing the job to another worker only detaches.
func (e *Exec) run(ctx context.Context, a *attempt) (result, error) {
	switch {
	case a.isCancelled():
		return a.killLeft(ctx)
	case e.Background:
		return e.launch(ctx, a)
	}
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer a.onCancel(func() error { return a.killIn(ctx, sb) })()
	cmd := e.command(a.job)
	if cmd.Env, err = a.environment(ctx, e.Env, e.SecretEnv); err != nil {
		return a.without(ctx, err)
	}
	cmd.Started = a.slot.rest
	res, err := sb.Run(ctx, cmd)
	if err != nil {
		return result{}, err
	}
	out := result{value: execResult(res), stdout: res.Stdout, stderr: res.Stderr}
	out.settled = func(ctx context.Context) error { return a.w.forgetSpool(ctx, a.job, sb) }
	if res.TimedOut {
		out.state = models.TimedOut
		out.err = &models.JobError{Code: "timeout", Message: "the command reached its timeout of " + a.job.Timeout().String() +
			" and was killed with all its processes; raise timeout_seconds if it needs longer"}
	}
	return out, nil
}

func (e *Exec) command(j models.Job) providers.Command {
	limit := e.MaxOutputBytes
	if limit == 0 {
		limit = defaultMaxOutput
	}
	return providers.Command{
		Name: j.ID, Shell: e.Command, Argv: e.Argv, Env: e.Env, Dir: e.Cwd, User: e.User, Stdin: e.blob,
		Timeout: j.Timeout() + j.Paused(), MaxOutput: limit, Merge: e.Merge,
	}
}

func execResult(r providers.Result) ExecResult {
	return ExecResult{
		ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		StdoutTruncated: r.StdoutBytes > int64(len(r.Stdout)), StderrTruncated: r.StderrBytes > int64(len(r.Stderr)),
		DurationMS: r.Duration.Milliseconds(),
	}
}

// KindEnv is the kind of job that changes the environment of later commands.
const KindEnv = "env"

// maxEnvNames is how many variables a sandbox keeps for later commands. Their size is bounded by maxEnv.
const maxEnvNames = 256

// maxVariable is the largest one that the kernel gives to a program, in bytes, as NAME=value with a NUL behind it. With
// a larger one no later command could start.
const maxVariable = 128 << 10

// envName is the form of names that every shell knows.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// SetEnv changes the variables that later commands of the sandbox get. Its place in the sandbox's order counts: what
// was submitted before it runs without the change.
type SetEnv struct {
	Env     map[string]*string `json:"env" doc:"Variables for later commands; null removes one that was set so"`
	Replace bool               `json:"replace,omitempty" doc:"Remove all other variables that were set so"`
}

// SetEnvResult says what was changed.
type SetEnvResult struct {
	Set     []string `json:"set" doc:"Names of variables that were set"`
	Removed []string `json:"removed" doc:"Names of variables that are not set any more"`
}

// Kind implements Args.
func (*SetEnv) Kind() string { return KindEnv }

// Validate implements Args.
func (s *SetEnv) Validate() error {
	if len(s.Env) == 0 && !s.Replace {
		return invalid("env", "is missing; name at least one variable")
	}
	if len(s.Env) > maxEnvNames {
		return invalid("env", "has %d variables; the limit is %d", len(s.Env), maxEnvNames)
	}
	set := map[string]string{}
	for name, value := range s.Env {
		if !envName.MatchString(name) {
			return invalid(
				"env",
				"%.80q is no name of a variable; use up to 255 letters, digits and _, and begin with a letter or _",
				name,
			)
		}
		if value == nil {
			continue
		}
		if size := len(name) + len(*value); size > maxVariable-len("=\x00") {
			return invalid("env", "%.80s has %d bytes with its name; the limit is %d, or no program could start",
				name, size, maxVariable-len("=\x00"))
		}
		set[name] = *value
	}
	return checkEnv("env", set)
}

// run writes the change down; every attempt writes the same.
func (s *SetEnv) run(ctx context.Context, a *attempt) (result, error) {
	if _, err := a.open(ctx); err != nil { // as of any other job of a sandbox that is paused or gone
		return result{}, err
	}
	err := a.w.store.ChangeEnv(
		ctx,
		a.job,
		models.EnvChange{Set: s.Env, Replace: s.Replace, MostNames: maxEnvNames, MostBytes: maxEnv},
	)
	if large := (*models.EnvTooLargeError)(nil); errors.As(err, &large) {
		return result{state: models.Failed, err: &models.JobError{Code: "env_too_large", Message: fmt.Sprintf(
			"nothing was changed: %v; the limits are %d and %d; remove variables, or write long values to a file",
			large,
			maxEnvNames,
			maxEnv,
		)}}, nil
	}
	done := SetEnvResult{Set: []string{}, Removed: []string{}}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if s.Env[name] != nil {
			done.Set = append(done.Set, name)
		} else {
			done.Removed = append(done.Removed, name)
		}
	}
	return result{value: done}, err
}
