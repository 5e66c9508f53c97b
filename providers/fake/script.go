package fake

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

const defaultOutput = 1 << 20

// execution is one started command.
type execution struct {
	box     *box
	cmd     providers.Command
	dir     string
	env     map[string]string
	steps   []step
	begun   time.Time
	pid     int
	ctx     context.Context // ends with kill
	kill    context.CancelFunc
	done    chan struct{} // closed when res is final
	timed   bool          // guarded by box.mu
	forgot  bool          // guarded by box.mu
	res     providers.Result
	out     capped
	errs    capped
	stopped bool

	behind    bool   // launched; it and what follows are guarded by box.mu
	signalled string // the signal that kill stands for
	input     []byte // fed and not read yet
	inputOver bool
	fed       map[string]fedAt // by id
	heard     map[string]bool  // signals, by id
	report    capped
}

type step struct {
	verb, arg string
}

// verbs of the language. Each gets the rest of its statement.
//
//	fake:stdout TEXT   fake:stderr TEXT   write TEXT as it is
//	fake:fill N        write N bytes to stdout
//	fake:sleep D       wait, and stand still while the sandbox is paused
//	fake:await P       wait until there is the file P, and stand still while the sandbox is paused
//	fake:exit N        end with N
//	fake:signal NAME   end by a signal, such as SIGSEGV
//	fake:oom           end by SIGKILL for lack of memory
//	fake:env NAME      print an environment variable
//	fake:pwd           print the directory
//	fake:cat           copy stdin to stdout
//	fake:input         copy what is fed to stdout, until its end
//	fake:append P T    append T to the file P
//	fake:crash         end the whole sandbox
//	python3            read cells of code and run each as statements of this language
func verbs() map[string]func(*execution, string) error {
	return map[string]func(*execution, string) error{
		"stdout":  func(e *execution, arg string) error { return e.print(&e.out, []byte(arg)) },
		"stderr":  func(e *execution, arg string) error { return e.print(e.stderr(), []byte(arg)) },
		"fill":    (*execution).fill,
		"sleep":   (*execution).sleep,
		"await":   (*execution).await,
		"exit":    (*execution).exit,
		"signal":  (*execution).signal,
		"oom":     (*execution).oom,
		"env":     func(e *execution, arg string) error { return e.print(&e.out, []byte(e.env[arg])) },
		"pwd":     func(e *execution, _ string) error { return e.print(&e.out, []byte(e.dir)) },
		"cat":     func(e *execution, _ string) error { return e.print(&e.out, e.cmd.Stdin) },
		"input":   (*execution).copyInput,
		"append":  (*execution).append,
		"python3": (*execution).runCells,
		"crash":   func(e *execution, _ string) error { e.box.end(); e.stopped = true; return nil },
	}
}

func signalNumber(name string) int {
	return map[string]int{
		"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGSEGV": 11, "SIGPIPE": 13, "SIGTERM": 15,
	}[name]
}

// parse reads a command before anything of it runs, so that a bad one has no effect.
func parse(cmd providers.Command) ([]step, error) {
	text := cmd.Shell
	switch {
	case (cmd.Shell == "") == (len(cmd.Argv) == 0):
		return nil, providers.Invalid.Errorf("give either a shell string or an argument list")
	case slices.ContainsFunc(append(slices.Clone(cmd.Argv), cmd.Shell, cmd.Dir), func(s string) bool { return strings.Contains(s, "\x00") }):
		return nil, providers.Invalid.Errorf("the command holds a NUL byte")
	case cmd.User != "":
		return nil, providers.NoUser.Errorf("commands of this sandbox run as its own user")
	case text == "":
		text = strings.Join(cmd.Argv, " ")
	}
	var steps []step
	known := verbs()
	for _, statement := range strings.Split(text, "; ") {
		verb, arg, _ := strings.Cut(strings.TrimPrefix(statement, "fake:"), " ")
		if known[verb] == nil {
			return nil, providers.NoCommand.Errorf("%s: command not found", verb)
		}
		steps = append(steps, step{verb, arg})
	}
	return steps, nil
}

// launch starts cmd in b, or finds it started. It answers an error for what cannot start.
func (s *State) launch(b *box, cmd providers.Command) (*execution, error) {
	steps, err := parse(cmd)
	e, isNew, err := b.claim(cmd, steps, err)
	if err != nil || !isNew {
		return e, err
	}
	s.countStart(cmd.Name)
	s.working.Go(e.run)
	return e, nil
}

// claim takes the name of cmd, unless it was taken before: then that execution counts, whatever cmd says now.
func (b *box) claim(cmd providers.Command, steps []step, bad error) (e *execution, isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.execs[cmd.Name]; e != nil {
		return e, false, nil
	}
	if bad != nil {
		return nil, false, bad
	}
	dir := b.files.join(cmd.Dir)
	if !b.files.isDir(dir) {
		return nil, false, providers.NoDir.Errorf("no directory %q", cmd.Dir)
	}
	e = newExecution(b, cmd, dir, steps)
	b.execs[cmd.Name] = e
	return e, true, nil
}

func newExecution(b *box, cmd providers.Command, dir string, steps []step) *execution {
	e := &execution{box: b, cmd: cmd, dir: dir, steps: steps, begun: time.Now(), done: make(chan struct{}), pid: firstPid + len(b.execs)}
	e.env = map[string]string{"HOME": b.spec.WorkDir}
	maps.Copy(e.env, b.spec.Env)
	maps.Copy(e.env, cmd.Env)
	limit := cmd.MaxOutput
	if limit <= 0 {
		limit = defaultOutput
	}
	e.out.limit, e.errs.limit, e.report.limit = limit, limit, limit
	e.ctx, e.kill = context.WithCancel(context.Background())
	return e
}

func (s *State) countStart(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts[name]++
}

func (e *execution) run() {
	defer close(e.done)
	defer e.kill()
	does := verbs()
	for _, st := range e.steps {
		if err := does[st.verb](e, st.arg); err != nil {
			_ = e.print(e.stderr(), []byte(err.Error()+"\n"))
			e.res.ExitCode, e.stopped = 1, true
		}
		if e.stopped {
			break
		}
		if e.ctx.Err() != nil {
			_ = e.signal(e.ender())
			break
		}
	}
	total, _ := e.box.paused()
	e.res.Duration = max(time.Since(e.begun)-total, time.Nanosecond)
	e.res.Stdout, e.res.StdoutBytes = e.out.kept, e.out.total
	e.res.Stderr, e.res.StderrBytes = e.errs.kept, e.errs.total
}

// ender is the signal that a killed command ends by.
func (e *execution) ender() string {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	return cmp.Or(e.signalled, "SIGTERM")
}

func (e *execution) sleep(arg string) error {
	d, err := time.ParseDuration(arg)
	if err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
	case <-e.box.over:
		e.stopped = true
	}
	e.thaw()
	return nil
}

// thaw waits until the sandbox is not paused.
func (e *execution) thaw() {
	_, gate := e.box.paused()
	select {
	case <-gate:
	case <-e.box.over:
		e.stopped = true
	}
}

func (e *execution) await(name string) error {
	for !e.stopped && e.ctx.Err() == nil {
		if _, err := e.box.files.stat(path.Join("/", e.box.files.joinAt(e.dir, name))); err == nil {
			break
		}
		if err := e.sleep("5ms"); err != nil {
			return err
		}
	}
	return nil
}

func (e *execution) fill(arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	return e.print(&e.out, bytes.Repeat([]byte("x"), n))
}

func (e *execution) exit(arg string) error {
	code, err := strconv.Atoi(arg)
	e.res.ExitCode, e.stopped = code, true
	return err
}

func (e *execution) signal(name string) error {
	e.res.Signal, e.res.ExitCode, e.stopped = name, 128+signalNumber(name), true
	return nil
}

func (e *execution) oom(string) error {
	e.res.OOMKilled = true
	return e.signal("SIGKILL")
}

func (e *execution) append(arg string) error {
	name, text, _ := strings.Cut(arg, " ")
	return e.box.files.append(path.Join("/", e.box.files.joinAt(e.dir, name)), []byte(text))
}

// capped keeps the first limit bytes of what is written and counts the rest.
type capped struct {
	kept         []byte
	limit, total int64
}

func (c *capped) write(p []byte) error {
	c.total += int64(len(p))
	room := max(c.limit-int64(len(c.kept)), 0)
	c.kept = append(c.kept, p[:min(int64(len(p)), room)]...)
	return nil
}

// stderr is where the command's errors go.
func (e *execution) stderr() *capped {
	if e.cmd.Merge {
		return &e.out
	}
	return &e.errs
}
