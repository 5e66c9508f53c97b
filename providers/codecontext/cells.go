// Package codecontext runs pieces of code one after the other in interpreters that keep what the pieces leave behind. A
// context is such an interpreter: a background command of the sandbox whose program, a driver, reads cells from its
// standard input and tells of them on descriptor 3.
package codecontext

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"sandyard/providers"
)

// Box is what of a sandbox a cell needs.
type Box interface {
	providers.Commands
	providers.Background
}

// Cell is a piece of code.
type Cell struct {
	ID       string // names it: in one sandbox an ID is run at most once
	Language string // one of Languages
	Context  string // empty = the language's own
	Code     string
	Env      map[string]string // while it runs
	// ContextEnv is the environment of a context that is started for the cell.
	ContextEnv map[string]string
	Dir        string        // where the context goes before; empty = it stays where it is
	Timeout    time.Duration // then the cell is interrupted
	Paused     time.Duration // since an earlier attempt, for which the sandbox stood still
	// MaxOutput is how many bytes of stdout and of stderr each are wanted, the last ones.
	MaxOutput int64
	// Merge sends what the cell writes to stderr to its stdout, in the order of both. Not for bash.
	Merge bool
	// Again says that an earlier attempt may have given the cell to a context.
	Again bool
}

// Outcome is how a cell ended. Code that fails is an Outcome, not an error.
type Outcome struct {
	Results     []Result
	Cut         bool   // there were more results, or larger ones, than are kept
	Error       *Error // nil = it ran to its end
	ExitCode    *int   // of bash
	Count       int    // of cells in the context, with this one
	StateLost   bool   // the context is gone; the next cell starts another
	TimedOut    bool
	Stdout      []byte
	Stderr      []byte
	StdoutBytes int64 // written, also what is not in Stdout
	StderrBytes int64
	Duration    time.Duration
}

// Result is something that a cell shows.
type Result struct {
	Main bool                       `json:"main,omitempty" doc:"Whether it is the value of the last expression"`
	Data map[string]json.RawMessage `json:"data" doc:"Data by media type, such as text/plain, text/html, image/png (base64) or application/json (as JSON)"`
}

// Error is why a cell did not run to its end.
type Error struct {
	Name      string `json:"name" doc:"Name of the exception, such as ZeroDivisionError; OutOfMemory, ContextDied or ContextKilled if its context ended"`
	Value     string `json:"value"`
	Traceback string `json:"traceback,omitempty"`
}

// Names of errors that are not the cell's own.
const (
	OutOfMemory   = "OutOfMemory"
	ContextDied   = "ContextDied"
	ContextKilled = "ContextKilled"
)

// Run runs the cell, or joins it where an earlier attempt has begun it, and waits for its end. When stop is closed the
// cell is interrupted. A cancelled ctx only detaches, and so does ErrPaused of a sandbox that was running. Cells of one
// context must be run one at a time.
func Run(ctx context.Context, box Box, c Cell, stop <-chan struct{}) (Outcome, error) {
	l, err := c.language()
	if err != nil {
		return Outcome{}, err
	}
	name, fed, err := enter(ctx, box, c, l)
	if err != nil {
		return Outcome{}, err
	}
	f := &follower{
		box:     box,
		cell:    c,
		once:    l.once,
		context: name,
		fed:     fed,
		begun:   time.Now().Add(-max(0, fed.Age-c.Paused)),
		report:  report{id: c.ID},
	}
	if err := f.follow(ctx, stop); err != nil {
		return Outcome{}, err
	}
	if f.missing() {
		return Outcome{}, l.missing()
	}
	return f.outcome(ctx)
}

// Known says whether a cell of this id was given to some context.
func Known(ctx context.Context, box Box, id string) (bool, error) {
	_, err := box.Exec(ctx, id, 0)
	if isClass(err, providers.NoExec) {
		return false, nil
	}
	return err == nil, err
}

// isClass says whether err is of one of the classes.
func isClass(err error, classes ...providers.Class) bool {
	return slices.ContainsFunc(classes, func(c providers.Class) bool {
		return errors.Is(err, &providers.Error{Class: c})
	})
}
