package execs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"sandyard/guest/protocol"
)

// Input is bytes for a command's standard input.
type Input struct {
	ID    string // a call that is repeated with it goes on where the one before was broken off
	Data  []byte
	EOF   bool // the input ends behind Data
	Fresh bool // drops the output of inputs that were settled
}

// feed is one input on its way into the command.
type feed struct {
	since   time.Time
	before  [streams]int64
	after   [streams]int64 // once it is settled
	fresh   bool           // whoever gave it settles it
	settled bool
	taken   int64
}

func (f *feed) report() protocol.Fed {
	return protocol.Fed{Bytes: f.taken, AgeMs: since(f.since), Before: f.before, After: f.after}
}

// Feed appends to the command's input.
func (e *Exec) Feed(ctx context.Context, i Input) (protocol.Fed, error) {
	in := e.stdin
	if err := in.lock(ctx); err != nil {
		return protocol.Fed{}, protocol.Errorf(protocol.ReasonBusy, "an earlier input is still being written")
	}
	defer in.unlock()
	f, known := in.feeds[i.ID]
	if !known {
		if err := e.takesInput(); err != nil {
			return protocol.Fed{}, err
		}
		if i.EOF && e.terminal != nil {
			return protocol.Fed{}, protocol.Errorf(
				protocol.ReasonInvalid,
				"the input of a terminal has no end: send the byte 0x04 instead, as Ctrl-D does",
			)
		}
		f = e.newFeed(i)
	}
	if err := in.write(ctx, f, i.Data); err != nil {
		return protocol.Fed{}, err
	}
	if i.EOF {
		in.shut()
	}
	return f.report(), nil
}

// newFeed remembers the input. The caller holds the input's lock.
func (e *Exec) newFeed(i Input) *feed {
	in := e.stdin
	if i.Fresh {
		e.takeIn()
		e.trim(in.unsettled(e.totals()))
	}
	f := &feed{since: time.Now(), before: e.totals(), fresh: i.Fresh}
	in.feeds[i.ID] = f
	if old := in.fed.add(i.ID); old != "" {
		delete(in.feeds, old)
	}
	return f
}

// unsettled is where the output of the first input begins that nobody has settled, or now.
func (in *input) unsettled(now [streams]int64) [streams]int64 {
	for _, f := range in.feeds {
		for i := range now {
			if !f.settled && f.fresh {
				now[i] = min(now[i], f.before[i])
			}
		}
	}
	return now
}

// Settle takes in what the command has written by now. Of the input of this id that is the end of its output.
func (e *Exec) Settle(ctx context.Context, id string) (protocol.Fed, error) {
	in := e.stdin
	if err := in.lock(ctx); err != nil {
		return protocol.Fed{}, protocol.Errorf(protocol.ReasonBusy, "an input is still being written")
	}
	defer in.unlock()
	f := in.feeds[id]
	if f == nil {
		return protocol.Fed{}, protocol.Errorf(protocol.ReasonNoExec, "the command received no recent input with this id")
	}
	if !f.settled {
		e.takeIn()
		e.settle(f)
	}
	return f.report(), nil
}

// settle writes down where the feed's output ends, and wakes who reads it.
func (e *Exec) settle(f *feed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.spools {
		f.after[i] = e.spools[i].total
	}
	f.settled = true
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *Exec) takesInput() error {
	switch {
	case e.stdin.file == nil:
		return protocol.Errorf(protocol.ReasonInvalid, "the command was started without standard input")
	case e.stdin.ended, e.over():
		return protocol.Errorf(protocol.ReasonEnded, "the command has ended")
	case e.stdin.closed:
		return protocol.Errorf(protocol.ReasonInvalid, "the command's input has ended")
	}
	return nil
}

func (e *Exec) over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *Exec) totals() (n [streams]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.spools {
		n[i] = e.spools[i].total
	}
	return n
}

// trim drops what was written before the offsets.
func (e *Exec) trim(before [streams]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.spools {
		e.spools[i].trim(before[i])
	}
}

// write puts what the feed still lacks of data into the pipe. A command that has closed its input takes everything.
func (in *input) write(ctx context.Context, f *feed, data []byte) error {
	if f.taken >= int64(len(data)) {
		return nil
	}
	before := in.taken
	err := in.copy(ctx, bytes.NewReader(data[f.taken:]))
	f.taken += in.taken - before
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return protocol.Errorf(
			protocol.ReasonBusy,
			"the command does not read its input: it has taken %d of %d bytes",
			f.taken,
			len(data),
		)
	}
	return err
}
