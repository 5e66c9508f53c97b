package toolset

import (
	"context"
	"time"

	"sandyard/providers"
)

// Command is a program that a tool runs. Exactly one of Shell and Argv is set.
type Command struct {
	Shell     string // a line for bash, or sh without bash
	Argv      []string
	Cwd       string // empty = the work directory
	Env       map[string]string
	Stdin     []byte  // then end of file, unless StdinOpen
	Timeout   float64 // seconds; 0 = CommandTimeout, of one in the background none
	Apart     bool    // stderr stays apart from stdout
	StdinOpen bool    // of one in the background
}

// CommandTimeout is how long a command may run where its call does not say.
const CommandTimeout = time.Hour

// File is a file that was read.
type File struct {
	Path string
	Data []byte
}

// Box is the sandbox of a call. An error that is neither an *Error nor a *providers.Error is one of the platform.
//
// What takes longer than a call may goes on, which a Ran says; of other work Box returns an error of its own.
type Box interface {
	// ID is that of the sandbox once something was done in it; empty = it has none to tell.
	ID() string

	// Run runs a command and waits for its end, at most for wait; 0 = as long as a call may.
	Run(ctx context.Context, c Command, wait time.Duration) (*Ran, error)
	// Launch starts a command in the background.
	Launch(ctx context.Context, c Command) (*Ran, error)
	// Follow is how a command stands, and its output behind a cursor. An empty name is the newest one of them.
	Follow(ctx context.Context, exec string, from Cursor, wait time.Duration) (*Answer, error)
	// View is how a command stands, and its output behind a cursor; nil = its end. An empty name is the newest one in the
	// background.
	View(ctx context.Context, exec string, from *Cursor) (*Answer, error)
	// Write writes to a command in the background, and returns what it writes within wait.
	Write(ctx context.Context, exec, input string, wait time.Duration) (*Answer, error)
	// Kill ends a command with all its processes, and returns its name.
	Kill(ctx context.Context, exec string) (string, error)
	// Hint is what to know about a command that has failed and needs the network.
	Hint(ctx context.Context, r *Ran) string
	// Code runs a cell.
	Code(ctx context.Context, language, code string, timeout float64, wait time.Duration) (*Answer, error)

	ReadFile(ctx context.Context, path string) (File, error)
	WriteFile(ctx context.Context, path string, data []byte, mode string) (providers.FileInfo, error)
	Edit(ctx context.Context, path string, edit providers.Replacement) (providers.Edited, error)
	List(ctx context.Context, path string, depth int) ([]providers.FileInfo, error)
	Remove(ctx context.Context, path string) error
	Glob(ctx context.Context, path, pattern string) (providers.Globbed, error)
	Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error)

	Processes(ctx context.Context) (providers.ProcessList, error)
	SignalProcess(ctx context.Context, pid int, start int64, signal string) error
	// SetEnv sets a variable for later commands; nil removes it.
	SetEnv(ctx context.Context, name string, value *string) error
}

// in adds the sandbox's id to fields.
func in(b Box, fields map[string]any) map[string]any {
	if id := b.ID(); id != "" {
		fields["sandbox_id"] = id
	}
	return fields
}
