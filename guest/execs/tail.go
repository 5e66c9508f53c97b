package execs

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLag is how far one who reads a tail may lag behind before the command has to wait for him, in bytes.
	maxLag = 64 << 10
	// returnPatience is how long the command waits for the next reader where the last one was lost with his worker.
	returnPatience = 30 * time.Second
	// joinLag is how much output may come after a reader has joined and before the command waits for him, in bytes: what
	// is being read from it, and what an input takes in.
	joinLag = 2 * maxLag
)

// tail is somebody who reads a command's output as it comes.
type tail struct {
	at   int64
	lost bool // he may come back
}

// Tail emits what is kept of the command's stdout from offset on, and then what comes, until the command has ended and
// all is emitted, emit fails or ctx ends. It says first where that begins: later than asked for where older bytes are
// not kept, earlier where there are not so many. Where bytes are missing later it ends. The command does not write on
// while somebody lags far behind; of one who was broken off lost says whether he may come back.
func (e *Exec) Tail(
	ctx context.Context,
	offset int64,
	begin func(at int64) error,
	emit func([]byte) error,
	lost func(context.Context) bool,
) error {
	t := e.join(offset)
	err := begin(t.at)
	if err == nil {
		err = e.read(ctx, t, emit)
	}
	if err != nil && lost(ctx) {
		e.expect(t)
	} else {
		e.leave(t)
	}
	return err
}

func (e *Exec) read(ctx context.Context, t *tail, emit func([]byte) error) error {
	for {
		over := e.over() // before the look at the output: of one that has ended nothing is added any more
		e.mu.Lock()
		rest, at := e.spools[Stdout].from(t.at)
		changed := e.changed
		e.mu.Unlock()
		switch {
		case at != t.at || over && len(rest) == 0:
			return nil
		case len(rest) > 0:
			rest = rest[:min(len(rest), readSize)]
			if err := emit(rest); err != nil {
				return err
			}
			e.advance(t, len(rest))
			continue
		}
		select {
		case <-changed:
		case <-e.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// join adds a reader, who takes the place of those that were lost. Where older bytes of a command that goes on are
// gone, he does not get the oldest of the others: they may be gone before the command waits for him.
func (e *Exec) join(offset int64) *tail {
	over := e.over()
	e.mu.Lock()
	defer e.mu.Unlock()
	t, s := &tail{}, &e.spools[Stdout]
	if first := s.total - int64(len(s.kept)); s.last && first > 0 && !over {
		offset = max(offset, first+min(joinLag, s.keep/4))
	}
	_, t.at = s.from(min(offset, s.total))
	for old := range e.tails {
		if old.lost {
			delete(e.tails, old)
		}
	}
	e.tails[t] = struct{}{}
	e.move()
	return t
}

// expect keeps the place of a reader who was lost, for a while.
func (e *Exec) expect(t *tail) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.lost = true
	time.AfterFunc(returnPatience, func() { e.leave(t) })
}

func (e *Exec) leave(t *tail) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tails, t)
	e.move()
}

func (e *Exec) advance(t *tail, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.at += int64(n)
	e.move()
}

// move wakes the pump.
func (e *Exec) move() {
	select {
	case e.moved <- struct{}{}:
	default:
	}
}

// pace returns when nobody who reads the tail of a stream lags far behind. For one whose command has ended it waits
// only where much of its output is still on the way.
func (e *Exec) pace(stream Stream) {
	ended := e.proc.Ended()
	for stream == Stdout && e.lags() {
		select {
		case <-e.moved:
		case <-ended:
			ended = nil
		}
		if ended == nil && (e.wasKilled() || e.held() <= maxLag) {
			return
		}
	}
}

// held is how much of the command's output its terminal holds. Linux lets a command wait that writes much more than is
// read; gVisor's kernel of 2022 takes everything, so it is we who wait once the command has ended.
func (e *Exec) held() int {
	if e.terminal == nil {
		return 0
	}
	raw, err := e.terminal.SyscallConn()
	if err != nil {
		return 0
	}
	var n int
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

func (e *Exec) lags() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for t := range e.tails {
		if e.spools[Stdout].total-t.at > maxLag {
			return true
		}
	}
	return false
}
