package execs

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"sandyard/guest/protocol"
)

// input is a command's standard input. It counts what the command's pipe has taken, so that a caller that lost its
// connection can send everything again.
type input struct {
	file *os.File // nil without; set before the command is ready

	mu     chan struct{} // a lock that whoever waits for it can give up: its holder may write to a full pipe
	taken  int64
	closed bool
	ended  bool // the command has, which is told a little later
	feeds  map[string]*feed
	fed    recent // the ids in feeds
}

func newInput() *input { return &input{mu: make(chan struct{}, 1), feeds: map[string]*feed{}} }

func (in *input) lock(ctx context.Context) error {
	select {
	case in.mu <- struct{}{}: // also where ctx is over
		return nil
	default:
	}
	select {
	case in.mu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seize is lock without an end to the wait.
func (in *input) seize() { in.mu <- struct{}{} }

func (in *input) unlock() { <-in.mu }

// WriteStdin writes what r holds, whose first byte is the one at offset of the whole input; bytes that were taken
// before are skipped. With eof the input ends behind it. A command that has closed its input, or has ended, takes
// everything.
func (e *Exec) WriteStdin(ctx context.Context, offset int64, r io.Reader, eof bool) error {
	in := e.stdin
	if err := in.lock(ctx); err != nil {
		return err
	}
	defer in.unlock()
	if in.file == nil {
		return protocol.Errorf(protocol.ReasonInvalid, "the command was started without standard input")
	}
	if offset > in.taken {
		return protocol.Errorf(
			protocol.ReasonInvalid,
			"input from byte %d on would leave a gap after byte %d",
			offset,
			in.taken,
		)
	}
	if _, err := io.CopyN(io.Discard, r, in.taken-offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := in.copy(ctx, r); err != nil {
		return err
	}
	if eof {
		in.shut()
	}
	return nil
}

// AppendStdin writes b behind everything that was written before, as envd's SendInput does.
func (e *Exec) AppendStdin(ctx context.Context, r io.Reader) error {
	in := e.stdin
	if err := in.lock(ctx); err != nil {
		return err
	}
	defer in.unlock()
	if in.file == nil {
		return protocol.Errorf(protocol.ReasonInvalid, "the command was started without standard input")
	}
	return in.copy(ctx, r)
}

// CloseStdin ends the command's input.
func (e *Exec) CloseStdin() {
	e.stdin.seize()
	defer e.stdin.unlock()
	e.stdin.shut()
}

// copy writes r into the pipe. A command that does not read blocks it until ctx ends.
func (in *input) copy(ctx context.Context, r io.Reader) error {
	if in.closed {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	defer in.interruptBy(ctx)()
	n, err := io.Copy(writerOnly{in.file}, r)
	in.taken += n
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		_, err = io.Copy(io.Discard, r)
	}
	return err
}

// interruptBy makes the end of ctx end a blocked write, until the returned function is called.
func (in *input) interruptBy(ctx context.Context) func() {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.file.SetWriteDeadline(time.Now())
		close(interrupted)
	})
	return func() {
		if !stop() {
			<-interrupted
			_ = in.file.SetWriteDeadline(time.Time{})
		}
	}
}

// writerOnly hides ReadFrom, which would splice past the deadline.
type writerOnly struct{ io.Writer }

// abandon closes the pipe of a command that has ended. It does not wait for a writer that is blocked but frees it.
func (in *input) abandon() {
	if in.file != nil {
		_ = in.file.Close()
	}
	in.seize()
	defer in.unlock()
	in.closed, in.ended = true, true
}

func (in *input) shut() {
	if in.file != nil && !in.closed {
		_ = in.file.Close()
	}
	in.closed = true
}
