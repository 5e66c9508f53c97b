package execs

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sandyard/guest/process"
	"sandyard/guest/protocol"
)

// Exec is one command, running or finished.
type Exec struct {
	// Command is as it was asked for; Arguments says when its arguments can be seen.
	Command Command

	ready    chan struct{} // closed when it runs, or cannot
	startErr error
	started  time.Time
	proc     *process.Process // nil when its supervisor was killed at the start
	stdin    *input
	terminal *os.File
	outputs  [streams]*os.File // that we read
	taking   [streams]sync.Mutex
	reclaim  func(int64) // of a background command: makes room for its output
	audience *audience   // of a plain command
	first    *listener   // joined before its first byte

	latecomers chan struct{} // places, one for each plain command that has ended and whose listeners have yet to read

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when a spool has grown
	tails      map[*tail]struct{}
	moved      chan struct{} // one that reads a tail has gone on, or left
	spools     [streams]spool
	forgotten  bool
	signals    recent // ids of signals that were sent
	killReason string
	slain      chan struct{}     // closed by the first Kill
	killed     chan struct{}     // made by the first Kill, and closed when nothing of the command is left
	info       protocol.ExecInfo // of a finished command

	done chan struct{} // closed when it has ended and its output is in
}

func newExec(c Command, room *atomic.Int64) *Exec {
	keep := c.MaxOutput
	if keep <= 0 {
		keep = DefaultMaxOutput
	}
	e := &Exec{
		Command: c, started: time.Now(), stdin: newInput(),
		ready: make(chan struct{}), changed: make(chan struct{}), done: make(chan struct{}), slain: make(chan struct{}),
		tails: map[*tail]struct{}{}, moved: make(chan struct{}, 1),
	}
	for i := range e.spools {
		e.spools[i] = spool{keep: keep, room: room, last: c.Background}
	}
	if c.Name == "" {
		e.audience = newAudience()
		e.first = e.audience.join()
	}
	return e
}

// begin takes over the running process, before ready is closed.
func (e *Exec) begin(p *process.Process, files *pipes) {
	e.proc, e.started = p, time.Now()
	e.stdin.file, e.outputs = files.stdin, files.out
	if files.tty {
		e.terminal = files.out[0]
	}
}

// follow collects the output, returns when the command has ended and leaves its report.
func (e *Exec) follow(files *pipes, oomBefore int64) {
	status := syscall.WaitStatus(syscall.SIGKILL)
	if e.proc == nil {
		files.closeOurs()
	} else {
		e.collect(files)
		status = e.proc.Status()
		e.awaitKill()
	}
	e.report(status, process.OOMKills()-oomBefore)
}

// awaitKill returns when a kill that is under way has found all that the command started: it is only over then.
func (e *Exec) awaitKill() {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed != nil {
		<-killed
	}
}

func (e *Exec) report(status syscall.WaitStatus, oomKills int64) {
	e.mu.Lock()
	e.info = protocol.ExecInfo{
		Name: e.Command.Name, Pid: e.Pid(), ExitCode: status.ExitStatus(),
		KillReason: e.killReason, OOMKills: oomKills, DurationMs: since(e.started),
	}
	if status.Signaled() {
		e.info.Signal = int(status.Signal())
		e.info.ExitCode = 128 + e.info.Signal
	}
	e.Command.Argv, e.Command.Env = nil, nil
	e.mu.Unlock()
}

// end lets everybody go who waits for the command.
func (e *Exec) end() {
	if e.audience != nil {
		close(e.audience.over)
	}
	close(e.done)
}

// Pid is the process id of the command, 0 when it could not be learnt.
func (e *Exec) Pid() int {
	if e.proc == nil {
		return 0
	}
	return e.proc.Pid
}

// Arguments returns the command's arguments and environment while it runs.
func (e *Exec) Arguments() ([]string, map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Command.Argv, e.Command.Env
}

// Done is closed when the command has ended.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Info reports on the command as it is now.
func (e *Exec) Info() protocol.ExecInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	info := e.info
	select {
	case <-e.done:
	default:
		info = protocol.ExecInfo{Name: e.Command.Name, Running: true, Pid: e.Pid(), DurationMs: since(e.started)}
	}
	info.StdoutBytes, info.StderrBytes = e.spools[Stdout].total, e.spools[Stderr].total
	info.AgeMs, info.Background, info.Forgotten = since(e.started), e.Command.Background, e.forgotten
	info.Terminal = e.Command.TTY != nil
	info.StdoutKept, info.StderrKept = int64(len(e.spools[Stdout].kept)), int64(len(e.spools[Stderr].kept))
	return info
}

// Kill ends the command with everything it started: TERM, the grace, KILL. The reason, if any, is kept with the result.
// A finished command is left alone.
func (e *Exec) Kill(grace time.Duration, reason string) {
	select {
	case <-e.done:
		return
	default:
	}
	e.mu.Lock()
	first := e.killed == nil
	if first {
		e.killed, e.killReason = make(chan struct{}), reason
		close(e.slain)
	}
	e.mu.Unlock()
	if e.proc != nil {
		e.proc.Kill(grace)
	}
	if first {
		close(e.killed)
	}
	e.move() // what it wrote is not waited for
	<-e.done
}

func (e *Exec) wasKilled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.killed != nil
}

// Signal sends a signal to the command's process group.
func (e *Exec) Signal(s syscall.Signal) error {
	if e.proc == nil {
		return syscall.ESRCH
	}
	return e.proc.Signal(s)
}

// Resize sets the size of the command's terminal.
func (e *Exec) Resize(size Size) error {
	if e.terminal == nil {
		return protocol.Errorf(protocol.ReasonInvalid, "the command has no terminal")
	}
	return resize(e.terminal, size)
}

// HasTerminal says whether the command runs on a terminal.
func (e *Exec) HasTerminal() bool { return e.terminal != nil }

// Age is how long ago the command started.
func (e *Exec) Age() time.Duration { return time.Since(e.started) }

// Follow calls begin, and then emits the output until the command has ended and everything was emitted, one of both
// fails or ctx ends. Of a named command that is all kept output from the offsets on; of a plain one what is written
// from now on, for the first caller from the beginning. The data may be kept.
func (e *Exec) Follow(ctx context.Context, offsets [2]int64, begin func() error, emit func(Chunk) error) error {
	if e.Command.Name != "" {
		if err := begin(); err != nil {
			return err
		}
		return e.replay(ctx, offsets, emit)
	}
	l := e.listener()
	defer e.audience.leave(l)
	if err := begin(); err != nil {
		return err
	}
	return e.audience.listen(ctx, l, emit)
}

func (e *Exec) replay(ctx context.Context, offsets [2]int64, emit func(Chunk) error) error {
	for {
		chunks, changed, over := e.news(&offsets)
		for _, c := range chunks {
			if err := emit(c); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-e.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Exec) listener() *listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.first; l != nil {
		e.first = nil
		return l
	}
	return e.audience.join()
}

// news returns what is kept beyond the offsets and moves them on.
func (e *Exec) news(offsets *[2]int64) (chunks []Chunk, changed <-chan struct{}, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.done:
		over = true // before the look at the spools: nothing is added any more
	default:
	}
	for i := range offsets {
		var rest []byte
		for rest, offsets[i] = e.spools[i].from(offsets[i]); len(rest) > 0; {
			n := min(len(rest), readSize)
			chunks = append(chunks, Chunk{Stream: Stream(i), Data: rest[:n:n]})
			offsets[i] += int64(n)
			rest = rest[n:]
		}
	}
	return chunks, e.changed, over
}

// forget drops the kept output.
func (e *Exec) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgotten = true
	for i := range e.spools {
		e.spools[i].drop()
	}
}

// remains is a forgotten command without what it took to run it. Its channels are closed, and nothing is added any
// more.
func (e *Exec) remains(stdin *input) *Exec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &Exec{
		Command: e.Command, started: e.started, stdin: stdin, info: e.info, spools: e.spools, forgotten: true,
		ready: e.done, done: e.done, changed: e.changed, moved: e.moved, tails: map[*tail]struct{}{},
	}
}
