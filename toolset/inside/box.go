// Package inside serves the agents' tools from within a sandbox, without a key: who reaches the port may use them. What
// they do is done by a guest of the program's own, so commands outlive the calls that started them.
package inside

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"sandyard/providers"
	"sandyard/toolset"
)

const (
	// maxEnv and maxEnvNames bound the variables for later commands: bytes of names and values, and their number.
	maxEnv      = 128 << 10
	maxEnvNames = 256
	// maxVariable is the largest that the kernel gives to a program, in bytes, as NAME=value with a NUL behind it.
	maxVariable = 128 << 10
	// behind begins the names of commands that nobody waits for.
	behind = "bg_"
	// feedWait is how long a command has to read what is written to it.
	feedWait = 5 * time.Second
)

// Sandbox is what the tools need of the sandbox.
type Sandbox interface {
	providers.Sandbox
	providers.Background
	providers.FileTools
	providers.Processes
}

// box implements toolset.Box for all calls together.
type box struct {
	in    Sandbox
	cells notebook

	mu       sync.Mutex
	newest   string // command
	launched string // newest one in the background
	env      map[string]string
}

var _ toolset.Box = (*box)(nil)

func newBox(in Sandbox) *box { return &box{in: in, env: map[string]string{}, cells: newNotebook(in)} }

func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:20]) }

// ID implements toolset.Box: a sandbox does not know its own.
func (b *box) ID() string { return "" }

// Run implements toolset.Box. A client that is gone before the wait is over does not want the command any more. One
// whose call has only taken its time, as in a sandbox that was paused, is told that it goes on.
func (b *box) Run(ctx context.Context, c toolset.Command, wait time.Duration) (*toolset.Ran, error) {
	c.Timeout = cmp.Or(c.Timeout, toolset.CommandTimeout.Seconds())
	wait = cmp.Or(wait, toolset.Patience)
	id := newID("run_")
	if err := b.start(ctx, id, c); err != nil {
		return nil, err
	}
	_, err := b.in.Exec(ctx, id, wait)
	switch {
	case err != nil && gone(ctx):
		return nil, errors.Join(ctx.Err(), b.in.Kill(context.WithoutCancel(ctx), id))
	case err != nil && ctx.Err() != nil:
		return goesOn(id), nil
	case err != nil:
		return nil, err
	}
	return b.ran(ctx, id, toolset.Cursor{}, 0)
}

// goesOn is the answer about a command of which no output is shown yet.
func goesOn(id string) *toolset.Ran {
	return &toolset.Ran{ExecID: id, Running: true, Cursor: toolset.Cursor{}.String()}
}

func (b *box) start(ctx context.Context, id string, c toolset.Command) error {
	limit := time.Duration(c.Timeout * float64(time.Second))
	if c.Timeout < 0 || limit > 24*time.Hour {
		return toolset.Invalid("timeout", "must be between 0.1 and %g seconds", (24 * time.Hour).Seconds())
	}
	if c.Shell == "" && len(c.Argv) == 0 {
		return toolset.Invalid("command", "is empty")
	}
	_, err := b.in.Launch(ctx, providers.Command{
		Name: id, Shell: c.Shell, Argv: c.Argv, Dir: c.Cwd, Env: b.environment(c.Env), Stdin: c.Stdin, StdinOpen: c.StdinOpen,
		Timeout: limit, MaxOutput: toolset.KeptOutput, Merge: !c.Apart,
	})
	if gone(ctx) || err != nil && ctx.Err() != nil { // it may have started, and nobody gets its name
		return errors.Join(ctx.Err(), b.in.Kill(context.WithoutCancel(ctx), id))
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newest = id; strings.HasPrefix(id, behind) {
		b.launched = id
	}
	return nil
}

// environment is the variables for later commands with a command's own before them.
func (b *box) environment(own map[string]string) map[string]string {
	b.mu.Lock()
	env := maps.Clone(b.env)
	b.mu.Unlock()
	maps.Copy(env, own)
	return env
}

// Launch implements toolset.Box.
func (b *box) Launch(ctx context.Context, c toolset.Command) (*toolset.Ran, error) {
	id := newID(behind)
	if err := b.start(ctx, id, c); err != nil {
		return nil, err
	}
	return goesOn(id), nil
}

// ran is how a command stands, and its output behind a cursor, of which the first byte is waited for.
func (b *box) ran(ctx context.Context, id string, from toolset.Cursor, wait time.Duration) (*toolset.Ran, error) {
	r := &toolset.Ran{ExecID: id}
	err := r.Follow(from, wait, func(q providers.OutputQuery) (providers.Output, error) { return b.in.Output(ctx, id, q) })
	if err != nil {
		return nil, unknown(id, err)
	}
	return r, nil
}

func unknown(id string, err error) error {
	if errors.Is(err, providers.ErrNoExec) {
		return toolset.Reject("exec_not_found", "there is no command %q; use the exec_id of an earlier answer", id)
	}
	return err
}

// named is the command that is meant, or one of the newest.
func (b *box) named(id string, onlyBehind bool) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case id != "":
		return id, nil
	case onlyBehind && b.launched != "":
		return b.launched, nil
	case !onlyBehind && b.newest != "":
		return b.newest, nil
	}
	return "", toolset.Reject("exec_not_found", "there is no such command; start one, or give exec_id")
}

// Follow implements toolset.Box. Of a command in the background it waits for output, of all others for the end.
func (b *box) Follow(ctx context.Context, id string, from toolset.Cursor, wait time.Duration) (*toolset.Answer, error) {
	id, err := b.named(id, false)
	if err != nil {
		return nil, err
	}
	if run := b.cells.find(id); run != nil {
		return run.answer(ctx, from, wait)
	}
	if !strings.HasPrefix(id, behind) {
		if _, err := b.in.Exec(ctx, id, wait); err != nil {
			return nil, unknown(id, err)
		}
		wait = 0
	}
	return toolset.Told(b.ran(ctx, id, from, wait))
}

// View implements toolset.Box.
func (b *box) View(ctx context.Context, id string, from *toolset.Cursor) (*toolset.Answer, error) {
	id, err := b.named(id, true)
	if err != nil {
		return nil, err
	}
	if from == nil {
		e, err := b.in.Exec(ctx, id, 0)
		if err != nil {
			return nil, unknown(id, err)
		}
		from = &toolset.Cursor{max(0, e.StdoutBytes-toolset.MaxTail), max(0, e.StderrBytes-toolset.MaxTail)}
	}
	return toolset.Told(b.ran(ctx, id, *from, 0))
}

// Write implements toolset.Box.
func (b *box) Write(ctx context.Context, id, input string, wait time.Duration) (*toolset.Answer, error) {
	id, err := b.named(id, true)
	if err != nil {
		return nil, err
	}
	e, err := b.in.Exec(ctx, id, 0)
	if err != nil {
		return nil, unknown(id, err)
	}
	if _, err := b.in.Feed(ctx, id, providers.Input{ID: newID("in_"), Data: []byte(input), Wait: feedWait}); err != nil {
		return nil, err
	}
	return toolset.Told(b.ran(ctx, id, toolset.Cursor{e.StdoutBytes, e.StderrBytes}, wait))
}

// Kill implements toolset.Box.
func (b *box) Kill(ctx context.Context, id string) (string, error) {
	id, err := b.named(id, true)
	if err != nil {
		return "", err
	}
	if run := b.cells.find(id); run != nil {
		run.interrupt()
		return id, nil
	}
	if _, err := b.in.Exec(ctx, id, 0); err != nil {
		return "", unknown(id, err)
	}
	return id, b.in.Kill(ctx, id)
}

// Hint implements toolset.Box: a sandbox does not know its policy.
func (b *box) Hint(context.Context, *toolset.Ran) string {
	return "\n[what the sandbox may connect to is decided outside, by its egress policy]\n"
}

// Code implements toolset.Box.
func (b *box) Code(
	ctx context.Context,
	language, code string,
	timeout float64,
	wait time.Duration,
) (*toolset.Answer, error) {
	run, err := b.cells.start(ctx, language, code, timeout, b.environment(nil))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.newest = run.id
	b.mu.Unlock()
	answer, err := run.answer(ctx, toolset.Cursor{}, wait)
	if gone(ctx) {
		run.interrupt()
		return nil, ctx.Err()
	}
	return answer, err
}

// Processes implements toolset.Box.
func (b *box) Processes(ctx context.Context) (providers.ProcessList, error) {
	list, err := b.in.Processes(ctx)
	for i, p := range list.Processes {
		if !strings.HasPrefix(p.ExecID, behind) && !strings.HasPrefix(p.ExecID, "run_") { // of an interpreter
			list.Processes[i].ExecID = ""
		}
	}
	return list, err
}

// SignalProcess implements toolset.Box.
func (b *box) SignalProcess(ctx context.Context, pid int, start int64, signal string) error {
	if signal = strings.ToUpper(signal); !strings.HasPrefix(signal, "SIG") {
		signal = "SIG" + signal
	}
	if pid < 2 || start < 0 {
		return toolset.Invalid("pid", "must be at least 2, and start that of the list")
	}
	return b.in.SignalProcess(ctx, providers.ProcessSignal{ID: newID("sig_"), Pid: pid, Start: start, Signal: signal})
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// SetEnv implements toolset.Box.
func (b *box) SetEnv(_ context.Context, name string, value *string) error {
	if !envName.MatchString(name) || value != nil && strings.ContainsRune(*value, 0) {
		return toolset.Invalid(
			"name",
			"must have up to 255 letters, digits and _, and not begin with a digit; a value has no NUL",
		)
	}
	if value != nil && len(name+"="+*value+"\x00") > maxVariable {
		return toolset.Reject(
			"env_too_large",
			"nothing was changed: name and value have at most %d bytes, or no program could start; write it to a file",
			maxVariable-len("=\x00"),
		)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if value == nil {
		delete(b.env, name)
		return nil
	}
	env := maps.Clone(b.env)
	env[name] = *value
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
	}
	if len(env) > maxEnvNames || size > maxEnv {
		return toolset.Reject(
			"env_too_large",
			"nothing was changed: the limits are %d variables and %d bytes; remove some first",
			maxEnvNames,
			maxEnv,
		)
	}
	b.env = env
	return nil
}
