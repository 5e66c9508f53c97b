package calls

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
)

const (
	// commandTimeout is how long a command may run, whoever waits for it.
	commandTimeout = time.Hour
	// early is how much sooner than its caller gives up a command may be joined.
	early = time.Second
)

// Output is what a command has written.
type Output struct {
	Stdout, Stderr string // bytes that are not UTF-8 are replaced
	ExitCode       int
}

// Text is both of its streams as one text.
func (o Output) Text() string { return o.Stdout + o.Stderr }

// Run runs a shell command in a sandbox. One that runs in the background has started when Run returns. One that takes
// longer than a call may goes on, with the error still_running; the same call joins it.
func (c *Calls) Run(ctx context.Context, sandboxID, command string, background bool) (Output, error) {
	if background {
		return Output{}, c.do(ctx, sandboxID, &kind.Exec{Command: command, Background: true})
	}
	began := time.Now()
	job, box, err := c.command(ctx, sandboxID, command)
	if err != nil {
		return Output{}, err
	}
	switch {
	case !job.State.Terminal(): // perhaps long before its time, because this server ends
		err = c.c.Store.CallGivenUp(ctx, job.TenantID, job.ID)
	case time.Since(began) > c.c.Patience-2*early:
		err = c.c.Store.CallAnswered(ctx, job.TenantID, job.ID)
	}
	if err != nil {
		return Output{}, err
	}
	if job.State != models.Succeeded {
		return Output{}, Failure(job, box)
	}
	if err := c.c.Stack.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult); err != nil {
		return Output{}, err
	}
	var res kind.ExecResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return Output{}, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return Output{text(job.Stdout, res.StdoutTruncated), text(job.Stderr, res.StderrTruncated), res.ExitCode}, nil
}

// command joins the job of the same call whose caller has given up, or submits one.
func (c *Calls) command(ctx context.Context, sandboxID, command string) (models.Job, models.Sandbox, error) {
	r := middleware.RequestOf(ctx)
	call := sha256.Sum256([]byte(sandboxID + "\n" + command))
	joined, err := c.c.Store.JoinCall(ctx, r.Tenant, sandboxID, call[:], c.c.Patience-early)
	if err != nil {
		return models.Job{}, models.Sandbox{}, err
	}
	if joined == "" {
		exec := &kind.Exec{Command: command, TimeoutSeconds: commandTimeout.Seconds()}
		return c.wait(ctx, func(o jobs.Options) (models.Submitted, error) {
			o.Call, o.JoinIn = call[:], c.c.Patience-early
			return c.c.Jobs.Submit(ctx, sandboxID, exec, o)
		})
	}
	leave, err := c.c.Stack.Waits.Enter(r.Tenant)
	if err != nil {
		return models.Job{}, models.Sandbox{}, err
	}
	defer leave()
	return c.c.Stack.Await(ctx, joined, c.c.Patience)
}

// text says where output was cut off.
func text(b []byte, truncated bool) string {
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	if truncated {
		s += fmt.Sprintf("\n[output cut off after %d bytes; write it to a file and read that]\n", len(b))
	}
	return s
}
