package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"sandyard/models"
	"sandyard/providers/codecontext"
)

// maxCode bounds the code of one cell, in bytes.
const maxCode = 1 << 20

// Code runs a piece of code, a cell, in a context that keeps its state for the next one. Code that fails is a job that
// succeeds: look at the error.
type Code struct {
	Language       string            `json:"language" enum:"python,javascript,bash"`
	Code           string            `json:"code"`
	Context        string            `json:"context,omitempty" maxLength:"32" pattern:"^[a-z0-9][a-z0-9_-]*$" patternDescription:"lower-case letters, digits, _ and -" doc:"The interpreter to use; a new name starts one. Default: one context per language, with the language's name. Cells of one context run one after the other, even with parallel"`
	Env            map[string]string `json:"env,omitempty" doc:"Environment variables for this cell"`
	Cwd            string            `json:"cwd,omitempty" doc:"The context changes to this directory and stays there. Default: its current directory, initially the work directory"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" doc:"After this time the cell is interrupted as by Ctrl-C, which keeps the context. If it does not stop within 5 s, the context is killed; default 300, at most 86400"`
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty" doc:"Most bytes to keep of stdout and of stderr each; the end is kept; default 1 MiB, at most 4 MiB"`
	Merge          bool              `json:"merge,omitempty" doc:"stderr goes to stdout in the order in which the cell writes; the stderr of the answer is then empty. Not for bash, whose cells can begin with exec 2>&1"`
	SecretEnv
}

// largestCodeOutput is less than a context keeps.
const largestCodeOutput = 4 << 20

// CodeResult is what a cell's job says of it, beside its output.
type CodeResult struct {
	Language         string               `json:"language" enum:"python,javascript,bash"`
	Context          string               `json:"context" doc:"Use it in a later cell to continue in this context"`
	ExecutionCount   int                  `json:"execution_count" doc:"Number of cells that the context has run, including this one"`
	Results          []codecontext.Result `json:"results" doc:"What the cell displayed, and the value of its last expression; at most 100 results and 4 MiB"`
	ResultsTruncated bool                 `json:"results_truncated" doc:"More results were dropped"`
	Error            *codecontext.Error   `json:"error" doc:"null if the cell completed"`
	ExitCode         *int                 `json:"exit_code,omitempty" doc:"Exit code of the last command of a bash cell, or of a context that ended during the cell"`
	StateLost        bool                 `json:"state_lost" doc:"The context ended and lost its state; the next cell starts a new one"`
	TimedOut         bool                 `json:"timed_out"`
	StdoutBytes      int64                `json:"stdout_bytes" doc:"Bytes written by the cell, including dropped ones"`
	StderrBytes      int64                `json:"stderr_bytes"`
	StdoutTruncated  bool                 `json:"stdout_truncated"`
	StderrTruncated  bool                 `json:"stderr_truncated"`
	DurationMS       int64                `json:"duration_ms"`
}

// Kind implements Args.
func (*Code) Kind() string { return models.KindCode }

// Validate implements Args.
func (c *Code) Validate() error {
	if err := checkContext(c.Language, c.Context); err != nil {
		return err
	}
	switch {
	case c.Merge && c.Language == codecontext.Bash:
		return invalid("merge", "is not supported for bash; begin the cell with exec 2>&1 instead")
	case c.Code == "":
		return invalid("code", "is missing")
	case len(c.Code) > maxCode:
		return invalid("code", "is %d bytes long; the limit is %d; write the code to a file and import it", len(c.Code), maxCode)
	case len(c.Cwd) > maxPath:
		return invalid("cwd", "is %d bytes long; the limit is %d", len(c.Cwd), maxPath)
	case c.MaxOutputBytes < 0 || c.MaxOutputBytes > largestCodeOutput:
		return invalid("max_output_bytes", "must be between 1 and %d, not %d", largestCodeOutput, c.MaxOutputBytes)
	}
	return errors.Join(checkNotReserved("cwd", c.Cwd), noNUL("code", c.Code), noNUL("cwd", c.Cwd), checkEnv("env", c.Env), c.check(c.Env))
}

func (c *Code) timeout() (time.Duration, error) {
	return seconds("timeout_seconds", c.TimeoutSeconds, DefaultExecTimeout, 100*time.Millisecond)
}

func (c *Code) context() string { return cmp.Or(c.Context, c.Language) }

// run joins the cell where an earlier attempt has begun it. A cancel interrupts the cell and so ends it; losing the job
// to another worker only detaches.
func (c *Code) run(ctx context.Context, a *attempt) (result, error) {
	box, err := a.codeBox(ctx)
	if err != nil {
		return result{}, err
	}
	stop, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	defer a.onCancel(func() error { interrupt(); return nil })()
	giveBack, err := c.come(ctx, a, box, stop.Done())
	if err != nil {
		return result{}, err
	}
	if giveBack == nil {
		return c.late(a), nil
	}
	defer giveBack()
	cell := c.cell(a.job)
	cell.Env, err = a.named(ctx, c.Env, c.SecretEnv)
	if missing := (*secretError)(nil); errors.As(err, &missing) {
		begun, err := a.begun(ctx, box)
		if err != nil || !begun {
			return missing.failed(), err
		}
	} else if err != nil {
		return result{}, err
	}
	o, err := codecontext.Run(ctx, box, cell, stop.Done())
	if err != nil {
		return result{}, err
	}
	shown, err := json.Marshal(o.Results)
	if err != nil {
		return result{}, err
	}
	out := result{value: c.result(o), stdout: o.Stdout, stderr: o.Stderr, content: shown}
	if o.TimedOut {
		out.state, out.err = models.TimedOut, codeTimeout(a.job.Timeout(), o.StateLost)
	}
	return out, nil
}

// come waits for the cell's turn, which one that an earlier attempt has begun has had; who is waiting for it comes behind it all the
// same. One that was cancelled before it was begun never is.
func (c *Code) come(ctx context.Context, a *attempt, box codecontext.Box, stop <-chan struct{}) (giveBack func(), err error) {
	switch known, err := a.begun(ctx, box); {
	case err != nil:
		return nil, err
	case known:
		return a.w.contexts.try(c.turnName(a)), nil
	}
	if a.isCancelled() {
		return nil, errCancel
	}
	return c.turn(ctx, a, stop)
}

// begun says whether an earlier attempt has begun the cell.
func (a *attempt) begun(ctx context.Context, box codecontext.Box) (bool, error) {
	if a.job.Attempt == 1 {
		return false, nil
	}
	return codecontext.Known(ctx, box, a.job.ID)
}

func (c *Code) turnName(a *attempt) string { return a.job.SandboxID + "/" + c.context() }

// turn waits for the cells that came before in the context, as long as the cell itself may take; nil = it was too long.
func (c *Code) turn(ctx context.Context, a *attempt, stop <-chan struct{}) (func(), error) {
	waiting, cancel := context.WithTimeout(ctx, a.job.Timeout())
	defer cancel()
	stopped := false
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-stop:
			stopped = true
			cancel()
		case <-waiting.Done():
		}
	})
	a.slot.rest()
	giveBack, err := a.w.contexts.take(waiting, c.turnName(a))
	cancel()
	watch.Wait()
	switch {
	case err == nil:
		return giveBack, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case stopped:
		return nil, errCancel
	}
	return nil, nil
}

func (c *Code) late(a *attempt) result {
	return result{state: models.TimedOut, err: &models.JobError{Code: "timeout", Message: fmt.Sprintf(
		"earlier cells of context %q were still running after %v, so this cell was not started; raise timeout_seconds or use another context",
		c.context(), a.job.Timeout())}}
}

func codeTimeout(limit time.Duration, lost bool) *models.JobError {
	what := "was interrupted; its context keeps its state"
	if lost {
		what = "did not stop when it was interrupted, so its context was killed and its state is lost"
	}
	return &models.JobError{Code: "timeout", Message: fmt.Sprintf("the cell reached its timeout of %v and %s; raise timeout_seconds if it needs longer", limit, what)}
}

func (c *Code) cell(j models.Job) codecontext.Cell {
	return codecontext.Cell{
		ID: j.ID, Language: c.Language, Context: c.Context, Code: c.Code, Env: c.Env, Dir: c.Cwd, Timeout: j.Timeout(), Paused: j.Paused(),
		MaxOutput: cmp.Or(c.MaxOutputBytes, defaultMaxOutput), Again: j.Attempt > 1,
		Merge: c.Merge, ContextEnv: j.KeptEnv,
	}
}

func (c *Code) result(o codecontext.Outcome) CodeResult {
	return CodeResult{
		Language: c.Language, Context: c.context(), ExecutionCount: o.Count, Results: []codecontext.Result{}, ResultsTruncated: o.Cut,
		Error: o.Error, ExitCode: o.ExitCode, StateLost: o.StateLost, TimedOut: o.TimedOut,
		StdoutBytes: o.StdoutBytes, StderrBytes: o.StderrBytes,
		StdoutTruncated: o.StdoutBytes > int64(len(o.Stdout)), StderrTruncated: o.StderrBytes > int64(len(o.Stderr)),
		DurationMS: o.Duration.Milliseconds(),
	}
}
