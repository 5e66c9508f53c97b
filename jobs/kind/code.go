package kind

import (
	"cmp"
	"errors"
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
		return Invalid("merge", "is not supported for bash; begin the cell with exec 2>&1 instead")
	case c.Code == "":
		return Invalid("code", "is missing")
	case len(c.Code) > maxCode:
		return Invalid(
			"code",
			"is %d bytes long; the limit is %d; write the code to a file and import it",
			len(c.Code),
			maxCode,
		)
	case len(c.Cwd) > maxPath:
		return Invalid("cwd", "is %d bytes long; the limit is %d", len(c.Cwd), maxPath)
	case c.MaxOutputBytes < 0 || c.MaxOutputBytes > largestCodeOutput:
		return Invalid("max_output_bytes", "must be between 1 and %d, not %d", largestCodeOutput, c.MaxOutputBytes)
	}
	return errors.Join(
		CheckNotReserved("cwd", c.Cwd),
		NoNUL("code", c.Code),
		NoNUL("cwd", c.Cwd),
		CheckEnv("env", c.Env),
		c.Check(c.Env),
	)
}

func (c *Code) budget() (time.Duration, error) {
	return Seconds("timeout_seconds", c.TimeoutSeconds, DefaultExecTimeout, 100*time.Millisecond)
}

// ContextID is the context that the cell runs in.
func (c *Code) ContextID() string { return cmp.Or(c.Context, c.Language) }

// Cell is what the context is to run for a job.
func (c *Code) Cell(j models.Job) codecontext.Cell {
	return codecontext.Cell{
		ID: j.ID, Language: c.Language, Context: c.Context, Code: c.Code, Env: c.Env, Dir: c.Cwd,
		Timeout: j.Timeout(), Paused: j.Paused(),
		MaxOutput: cmp.Or(c.MaxOutputBytes, defaultMaxOutput), Again: j.Attempt > 1,
		Merge: c.Merge, ContextEnv: j.KeptEnv,
	}
}
