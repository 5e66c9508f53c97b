package execs

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"sandyard/guest/protocol"
)

const (
	// maxEnded bounds the background commands whose end and output are kept until somebody forgets them.
	maxEnded = 256
	// maxRecent is how many calls on one command are remembered, so that they can be repeated without harm.
	maxRecent = 64
	// timeoutReason is the kill reason of a command whose time was over.
	timeoutReason = "timeout"
)

// admit says whether another background command may start. The caller holds the lock.
func (r *Registry) admit(c Command) error {
	n, terminals := 0, 0
	for e := range r.live {
		if !e.Command.Background {
			continue
		}
		if n++; e.Command.TTY != nil {
			terminals++
		}
	}
	switch {
	case n >= maxBackground:
		return protocol.Errorf(
			protocol.ReasonTooMany,
			"%d background commands and code contexts run in this sandbox, which is the limit; "+
				"delete one, or wait for one to end",
			n,
		)
	case c.TTY != nil && terminals >= maxTerminals:
		return protocol.Errorf(
			protocol.ReasonTooMany,
			"%d terminals run in this sandbox, which is the limit; delete one, or end its shell",
			terminals,
		)
	}
	return nil
}

// vacate frees the name of a background command that has ended. The caller holds the lock.
func (r *Registry) vacate(e *Exec) {
	e.forget()
	delete(r.named, e.Command.Name)
	r.finished = slices.DeleteFunc(r.finished, func(name string) bool { return name == e.Command.Name })
	r.ended = slices.DeleteFunc(r.ended, func(other *Exec) bool { return other == e })
}

// retain keeps the output of a background command that has ended, in place of the oldest. The caller holds the lock.
func (r *Registry) retain(e *Exec) {
	r.ended = append(r.ended, e)
	if len(r.ended) > maxEnded {
		r.ended[0].forget()
		r.ended = slices.Delete(r.ended, 0, 1)
	}
}

// makeRoom drops the output of background commands that have ended, the oldest first, until n bytes more can be kept.
func (r *Registry) makeRoom(n int64) {
	if r.behind.Load() >= n {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ended {
		if r.behind.Load() >= n {
			return
		}
		e.dropOutput()
	}
}

func (e *Exec) dropOutput() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.spools {
		e.spools[i].drop()
	}
}

// Expire kills the command when its time is over. It ends with the command.
func (e *Exec) Expire(limit, grace time.Duration, reason string) {
	select {
	case <-e.done:
	case <-time.After(limit):
		e.Kill(grace, reason)
	}
}

const killGrace = 2 * time.Second

// Await reports on the command at its end, or as it is when ctx ends.
func (e *Exec) Await(ctx context.Context) protocol.ExecInfo {
	select {
	case <-e.done:
	case <-ctx.Done():
	}
	return e.Info()
}

// Read returns at most limit bytes of a stream from offset on, and where they begin: later than asked for where older
// ones are not kept. It waits for the first of them until the command or ctx ends.
func (e *Exec) Read(
	ctx context.Context,
	stream Stream,
	offset int64,
	limit int,
) (b []byte, begin int64, info protocol.ExecInfo) {
	for {
		over := e.over() || ctx.Err() != nil // before the look at the output: of one that has ended nothing is added any more
		e.mu.Lock()
		rest, at := e.spools[stream].from(offset)
		changed := e.changed
		e.mu.Unlock()
		if len(rest) > 0 || over {
			return rest[:min(len(rest), limit)], at, e.Info()
		}
		select {
		case <-changed:
		case <-e.done:
		case <-ctx.Done():
		}
	}
}

// SignalOnce sends a signal to the command's process group, unless one of this id was sent before.
func (e *Exec) SignalOnce(id string, s syscall.Signal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.signals.has(id) {
		return nil
	}
	if err := e.Signal(s); errors.Is(err, syscall.ESRCH) {
		return protocol.Errorf(protocol.ReasonEnded, "the command has ended")
	} else if err != nil {
		return err
	}
	e.signals.add(id)
	return nil
}

// recent is the last ids of something.
type recent []string

func (r recent) has(id string) bool { return slices.Contains(r, id) }

// add remembers id and returns the one that it forgets for that, if any.
func (r *recent) add(id string) (old string) {
	if *r = append(*r, id); len(*r) > maxRecent {
		old = (*r)[0]
		*r = slices.Delete(*r, 0, 1)
	}
	return old
}
