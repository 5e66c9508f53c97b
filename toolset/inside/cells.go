package inside

import (
	"cmp"
	"context"
	"sync"
	"time"

	"sandyard/providers/codecontext"
	"sandyard/toolset"
)

const (
	// maxCells is how many cells may run or wait at once, maxKeptCells of how many that have ended the outcome is kept.
	maxCells     = 16
	maxKeptCells = 32
	// cellTimeout is how long a cell may run where its call does not say, in seconds.
	cellTimeout = 300
	// cellOutput is what is kept of the output of a cell, in bytes.
	cellOutput = 4 << 20
)

// notebook runs cells, those of one language one after the other.
type notebook struct {
	in    codecontext.Box
	turns map[string]chan struct{} // by language: who has what is in it has the turn

	mu   *sync.Mutex
	runs map[string]*cellRun
	old  *[]string // those that have ended, oldest first
}

func newNotebook(in codecontext.Box) notebook {
	n := notebook{
		in:    in,
		turns: map[string]chan struct{}{},
		mu:    &sync.Mutex{},
		runs:  map[string]*cellRun{},
		old:   &[]string{},
	}
	for _, language := range codecontext.Languages() {
		n.turns[language] = make(chan struct{}, 1)
	}
	return n
}

// cellRun is a cell on its way. What follows done is set before that is closed.
type cellRun struct {
	id   string
	stop chan struct{}
	once sync.Once
	done chan struct{}
	out  codecontext.Outcome
	err  error
}

// interrupt ends the cell as Ctrl-C does.
func (r *cellRun) interrupt() { r.once.Do(func() { close(r.stop) }) }

func (n notebook) find(id string) *cellRun {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runs[id]
}

// start runs a cell, when its turn has come.
func (n notebook) start(
	ctx context.Context,
	language, code string,
	timeout float64,
	env map[string]string,
) (*cellRun, error) {
	if code == "" {
		return nil, toolset.Invalid("code", "is empty")
	}
	timeout = cmp.Or(timeout, cellTimeout)
	if timeout < 0 || timeout > (24*time.Hour).Seconds() {
		return nil, toolset.Invalid("timeout", "must be between 0.1 and %g seconds", (24 * time.Hour).Seconds())
	}
	run := &cellRun{id: newID("cell_"), stop: make(chan struct{}), done: make(chan struct{})}
	cell := codecontext.Cell{
		ID: run.id, Language: language, Code: code, ContextEnv: env, Merge: true, MaxOutput: cellOutput,
		Timeout: time.Duration(timeout * float64(time.Second)),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.runs)-len(*n.old) >= maxCells {
		return nil, toolset.Reject("too_many_cells", "%d cells run or wait; wait for one to end", maxCells)
	}
	n.runs[run.id] = run
	go n.run(context.WithoutCancel(ctx), run, cell) // ends with the cell, which has a timeout
	return run, nil
}

func (n notebook) run(ctx context.Context, r *cellRun, cell codecontext.Cell) {
	defer func() {
		close(r.done)
		n.mu.Lock()
		defer n.mu.Unlock()
		if *n.old = append(*n.old, r.id); len(*n.old) > maxKeptCells {
			delete(n.runs, (*n.old)[0])
			*n.old = (*n.old)[1:]
		}
	}()
	turn := n.turns[cell.Language]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		r.out, r.err = codecontext.Run(ctx, n.in, cell, r.stop)
	case <-r.stop:
		r.err = toolset.Reject("cancelled", "the cell was not started")
	}
}

// answer is how the cell stands, at its end or after the wait.
func (r *cellRun) answer(ctx context.Context, from toolset.Cursor, wait time.Duration) (*toolset.Answer, error) {
	ran := &toolset.Ran{ExecID: r.id, Running: true, Cursor: from.String()}
	select {
	case <-r.done:
	case <-time.After(wait):
		return ran.Answer(), nil
	case <-ctx.Done():
		return ran.Answer(), nil
	}
	if r.err != nil {
		return nil, r.err
	}
	o := r.out
	ran.Running, ran.TimedOut, ran.DurationMS = false, o.TimedOut, o.Duration.Milliseconds()
	ran.Dropped = o.StdoutBytes - int64(len(o.Stdout))
	ran.Fill(from, toolset.Piece{Begin: ran.Dropped, Total: o.StdoutBytes, Data: o.Stdout, Last: true}, toolset.Piece{
		Begin: o.StderrBytes - int64(len(o.Stderr)), Total: o.StderrBytes, Data: o.Stderr, Last: true,
	})
	return toolset.Cell{Results: o.Results, Error: o.Error, StateLost: o.StateLost}.Answer(ran), nil
}
