package providers

import (
	"context"
	"io"
)

// Terminals is implemented by sandboxes whose background commands can run on a terminal: Launch with Command.Terminal.
// Such a command belongs to no connection. What it has written last is kept as that of every background command, Feed
// is what is typed, and an end of the input is typed, too (0x04).
type Terminals interface {
	Commands
	Background
	// Tail streams a command's output: what is kept of it from offset on, and then what comes. For as long as the stream is
	// open the command waits for its reader, so that nothing is lost to one who is slow. The stream ends with the
	// command, or where bytes are missing; any other end is an error of Read.
	Tail(ctx context.Context, name string, offset int64) (Tail, error)
	// Resize sets the size of a command's terminal.
	Resize(ctx context.Context, name string, size TerminalSize) error
}

// TerminalSize is in characters.
type TerminalSize struct{ Cols, Rows uint16 }

// Tail is a command's output as it comes. Its reader closes it.
type Tail struct {
	io.ReadCloser

	Begin int64 // offset of the first byte: later than asked for where older ones are not kept, earlier where there are not so many
}
