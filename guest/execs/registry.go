// Package execs keeps the commands of a sandbox: it starts them, collects their output while nobody may be listening,
// and remembers how they ended.
//
// A named command belongs to nobody's connection. Its name starts it at most once, the beginning of its output is kept
// until Forget, and whoever asks with the name again gets the same output from any offset. A command without a name is
// envd's plain kind: its output goes to who listens, and it is forgotten when it ends.
package execs

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sandyard/guest/process"
	"sandyard/guest/protocol"
)

const (
	// DefaultMaxOutput is how many bytes of each stream of a named command are kept when it does not say.
	DefaultMaxOutput = 1 << 20
	// maxKept bounds all kept output together, in bytes.
	maxKept = 64 << 20
	// maxLive bounds the commands that run at one time.
	maxLive = 512
	// maxFinished bounds the finished commands whose names are remembered; beyond it the oldest are forgotten.
	maxFinished = 8192
	// maxBackground bounds the background commands that run at one time.
	maxBackground = 64
	// maxTerminals bounds those of them that run on terminals.
	maxTerminals = 16
	// maxKeptBehind bounds the kept output of all background commands together, in bytes. That of foreground ones is
	// never cut for it.
	maxKeptBehind = 32 << 20
)

// Registry holds the commands.
type Registry struct {
	host   *process.Host
	room   atomic.Int64 // bytes of output that may still be kept
	behind atomic.Int64 // the same for background commands

	// latecomers are places for plain commands that have ended and whose output somebody has yet to read.
	latecomers chan struct{}

	mu       sync.Mutex
	workDir  string
	env      map[string]string // never changed, only replaced
	floor    map[string]string // likewise; of commands whose environment says nothing else
	named    map[string]*Exec
	live     map[*Exec]struct{}
	finished []string // names, oldest first
	ended    []*Exec  // of those the background ones whose output may be kept
	noInput  *input   // of all that had none and are forgotten

	signalling sync.Mutex
	signals    recent // ids of signals that were sent to single processes
}

// NewRegistry makes a registry whose commands get env and start in workDir unless they say otherwise.
func NewRegistry(host *process.Host, env map[string]string, workDir string) *Registry {
	r := &Registry{
		host: host, env: withDefaults(env), workDir: workDir,
		named: map[string]*Exec{}, live: map[*Exec]struct{}{}, noInput: newInput(),
		latecomers: make(chan struct{}, maxLatecomers),
	}
	r.room.Store(maxKept)
	r.behind.Store(maxKeptBehind)
	return r
}

// AddEnv gives env to every command that starts from now on, in place of what has the same name.
func (r *Registry) AddEnv(env map[string]string) error {
	if err := checkEnv(env); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.env)
	maps.Copy(all, env)
	r.env = withDefaults(all)
	return nil
}

// SetFloor gives env to every command that starts from now on, unless its environment has the name already. It takes
// the place of an earlier one.
func (r *Registry) SetFloor(env map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor = maps.Clone(env)
}

// SetWorkDir changes where commands start that do not say: at an absolute path.
func (r *Registry) SetWorkDir(dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workDir = dir
}

// Defaults returns the environment of a command that asks for nothing, a copy, and where it starts.
func (r *Registry) Defaults() (env map[string]string, workDir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	env = map[string]string{}
	maps.Copy(env, r.floor)
	maps.Copy(env, r.env)
	return env, r.workDir
}

// Home is the home directory that commands find in their environment.
func (r *Registry) Home() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.env["HOME"], r.floor["HOME"])
}

// Start starts the command, or returns the one that has its name. An error means that nothing has run, and leaves the
// name free.
func (r *Registry) Start(c Command) (*Exec, error) {
	e, fresh, err := r.reserve(c)
	if err != nil {
		return nil, err
	}
	if !fresh {
		<-e.ready
		return e, e.startErr
	}
	err = r.launch(e, c)
	if err != nil {
		r.release(e)
		e.startErr = err
	}
	close(e.ready)
	return e, err
}

// reserve returns the command with c's name, made now if there is none.
func (r *Registry) reserve(c Command) (e *Exec, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.named[c.Name]; c.Name != "" && e != nil {
		if !c.Anew || !e.Command.Background || !e.over() {
			return e, false, nil
		}
		r.vacate(e)
	}
	if len(r.live) >= maxLive {
		return nil, false, protocol.Errorf(protocol.ReasonBusy, "%d commands are running; wait for one to end", maxLive)
	}
	if c.Background {
		if err := r.admit(c); err != nil {
			return nil, false, err
		}
		e = newExec(c, &r.behind)
		e.reclaim = r.makeRoom
	} else {
		e = newExec(c, &r.room)
	}
	e.latecomers = r.latecomers
	r.live[e] = struct{}{}
	if c.Name != "" {
		r.named[c.Name] = e
	}
	return e, true, nil
}

// release takes back a command that was not started.
func (r *Registry) release(e *Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, e)
	if e.Command.Name != "" {
		delete(r.named, e.Command.Name)
	}
}

func (r *Registry) launch(e *Exec, c Command) error {
	spec, err := r.resolve(c)
	if err != nil {
		return err
	}
	files, err := openPipes(c)
	if err != nil {
		return protocol.Errorf(protocol.ReasonBusy, "open the command's pipes: %v", err)
	}
	oom := process.OOMKills()
	p, err := r.host.Start(spec, files.forChild())
	files.closeChild()
	if err != nil && !errors.Is(err, process.ErrUnknownStart) {
		files.closeOurs()
		return startError(spec, err)
	}
	e.begin(p, files)
	if c.Timeout > 0 {
		go e.Expire(c.Timeout, killGrace, timeoutReason)
	}
	go func() { // ends with the command, which Host.Close ends
		e.follow(files, oom)
		r.settle(e) // first: who has heard of the end finds it among the running ones no more
		e.end()
	}()
	return nil
}

func startError(spec process.Spec, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, process.ErrNoProcess), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return protocol.Errorf(protocol.ReasonBusy, "%v", process.ErrNoProcess)
	case errors.Is(err, syscall.ENOEXEC):
		return protocol.Errorf(protocol.ReasonInvalid, "'%s' is not a program that this machine can run", spec.Path)
	case errors.Is(err, syscall.E2BIG):
		return protocol.Errorf(protocol.ReasonInvalid, "the arguments and environment are too long")
	case errors.Is(err, syscall.EACCES):
		return protocol.Errorf(protocol.ReasonDenied, "no permission to run '%s'", spec.Path)
	case errors.Is(err, syscall.ENOENT):
		return protocol.Errorf(protocol.ReasonNoCommand, "'%s', or the interpreter it names, does not exist", spec.Path)
	case errors.As(err, &errno):
		return protocol.Errorf(protocol.ReasonInvalid, "start '%s': %v", spec.Path, errno)
	default:
		return protocol.Errorf(protocol.ReasonInternal, "start '%s': %v", spec.Path, err)
	}
}

// settle moves a command that has ended from the live to the finished ones.
func (r *Registry) settle(e *Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, e)
	if e.Command.Name == "" {
		return
	}
	if e.Command.Background {
		r.retain(e)
	}
	r.finished = append(r.finished, e.Command.Name)
	if len(r.finished) > maxFinished {
		r.named[r.finished[0]].forget()
		delete(r.named, r.finished[0])
		r.finished = slices.Delete(r.finished, 0, 1)
	}
}

// Named returns the command with this name, running or finished.
func (r *Registry) Named(name string) (*Exec, error) {
	r.mu.Lock()
	e := r.named[name]
	r.mu.Unlock()
	if e == nil {
		return nil, protocol.Errorf(protocol.ReasonNoExec, "no command is named '%s'", name)
	}
	<-e.ready
	return e, e.startErr
}

// Find returns the running command that match accepts.
func (r *Registry) Find(match func(*Exec) bool) (*Exec, bool) {
	for _, e := range r.Live() {
		if match(e) {
			return e, true
		}
	}
	return nil, false
}

// Live returns the running commands, oldest first.
func (r *Registry) Live() []*Exec {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.live))
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(e *Exec) bool {
		<-e.ready
		return e.startErr != nil
	})
	slices.SortFunc(all, func(a, b *Exec) int { return a.started.Compare(b.started) })
	return all
}

// Infos reports on every named command, oldest first.
func (r *Registry) Infos() []protocol.ExecInfo {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.named))
	r.mu.Unlock()
	infos := make([]protocol.ExecInfo, 0, len(all))
	for _, e := range all {
		<-e.ready
		if e.startErr == nil {
			infos = append(infos, e.Info())
		}
	}
	slices.SortFunc(infos, func(a, b protocol.ExecInfo) int { return int(b.AgeMs - a.AgeMs) })
	return infos
}

// Forget drops the kept output of a finished command; its name and result stay.
func (r *Registry) Forget(name string) error {
	e, err := r.Named(name)
	if err != nil {
		return err
	}
	select {
	case <-e.done:
		e.forget()
		r.shrink(name, e)
		return nil
	default:
		return protocol.Errorf(protocol.ReasonBusy, "the command '%s' is still running", name)
	}
}

// shrink leaves of a forgotten foreground command without input or terminal what is still told of it: there may be
// thousands.
func (r *Registry) shrink(name string, e *Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named[name] == e && !e.Command.Background && e.stdin.file == nil && e.terminal == nil {
		r.named[name] = e.remains(r.noInput)
	}
}

// since is a duration in milliseconds, rounded up: nothing takes no time at all.
func since(t time.Time) int64 { return (time.Since(t) + time.Millisecond - 1).Milliseconds() }
