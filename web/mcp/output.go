package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/calls"
	"sandyard/web/problem"
)

const (
	// maxHead and maxTail are how many bytes one answer has of an output: from the cursor on, and of its end.
	maxHead = 24 << 10
	maxTail = 8 << 10
)

// cursor says which part of a command's outputs its caller has: bytes of stdout and of stderr.
type cursor [2]int64

func (c cursor) String() string { return fmt.Sprintf("%d.%d", c[0], c[1]) }

func readCursor(text string) (cursor, error) {
	var c cursor
	if text == "" {
		return c, nil
	}
	first, second, ok := strings.Cut(text, ".")
	var errs [2]error
	c[0], errs[0] = strconv.ParseInt(first, 10, 64)
	c[1], errs[1] = strconv.ParseInt(second, 10, 64)
	if !ok || errors.Join(errs[:]...) != nil || c[0] < 0 || c[1] < 0 {
		return c, problem.Invalid("cursor", "must be the cursor of an earlier answer, or be left out to begin with the first byte")
	}
	return c, nil
}

// ran is how a command stands, and a part of its output.
type ran struct {
	ExecID     string `json:"exec_id"`
	SandboxID  string `json:"sandbox_id"`
	Running    bool   `json:"running"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	OOMKilled  bool   `json:"oom_killed,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	Stdout     string `json:"stdout"`                // from the cursor on
	StdoutTail string `json:"stdout_tail,omitempty"` // its end, where more lies between
	Stderr     string `json:"stderr"`
	StderrTail string `json:"stderr_tail,omitempty"`
	Cursor     string `json:"cursor"`            // behind stdout and stderr
	More       bool   `json:"more,omitempty"`    // there is more behind the cursor already
	Dropped    int64  `json:"dropped,omitempty"` // bytes that were not kept
}

// piece is a part of one output.
type piece struct {
	begin, total int64 // offset of the first byte; bytes written in all
	data         []byte
	last         bool // nothing comes behind data
}

// take puts the bytes into text and tail, and returns the cursor behind text.
func (p piece) take(from int64) (text, tail string, next int64, more bool) {
	data, begin := p.data, p.begin
	if skip := from - begin; skip > 0 {
		data, begin = data[min(skip, int64(len(data))):], begin+min(skip, int64(len(data)))
	}
	head := data
	if len(head) > maxHead {
		head = data[:whole(data[:maxHead])]
		if rest := data[len(head):]; p.last {
			tail = valid(rest[max(0, len(rest)-maxTail):])
		}
	} else if !p.last {
		head = data[:whole(data)]
	}
	next = max(from, begin+int64(len(head)))
	more = len(head) < len(data)
	if !p.last { // the beginning of a letter waits for its end
		more = begin+int64(len(data)) < p.total
	}
	return valid(head), tail, next, more
}

// whole is the length of b without a letter that is cut off at its end.
func whole(b []byte) int {
	for n := len(b) - 1; n >= max(0, len(b)-utf8.UTFMax); n-- {
		if utf8.RuneStart(b[n]) {
			if utf8.FullRune(b[n:]) {
				return len(b)
			}
			return n
		}
	}
	return len(b)
}

func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// fill puts both outputs behind a cursor into the answer.
func (r *ran) fill(from cursor, stdout, stderr piece) {
	var next cursor
	var more [2]bool
	r.Stdout, r.StdoutTail, next[0], more[0] = stdout.take(from[0])
	r.Stderr, r.StderrTail, next[1], more[1] = stderr.take(from[1])
	r.Cursor, r.More = next.String(), more[0] || more[1]
}

// text is the answer for the model.
func (r *ran) text() string {
	var b strings.Builder
	switch {
	case r.Running:
		fmt.Fprintf(&b, "The command still runs as %s. Call shell_wait with exec_id %s and cursor %s to follow it.\n", r.ExecID, r.ExecID, r.Cursor)
	case r.TimedOut:
		b.WriteString("The command reached its timeout and was killed with all its processes.\n")
	case r.Signal != "":
		fmt.Fprintf(&b, "The command was ended by %s.\n", r.Signal)
	case r.ExitCode != nil:
		fmt.Fprintf(&b, "exit code %d\n", *r.ExitCode)
	}
	if r.OOMKilled {
		b.WriteString("The kernel killed a process because the sandbox ran out of memory.\n")
	}
	b.WriteString(r.Stdout)
	r.cut(&b, r.StdoutTail)
	if r.Stderr != "" || r.StderrTail != "" {
		fmt.Fprintf(&b, "\n[stderr]\n%s", r.Stderr)
		r.cut(&b, r.StderrTail)
	}
	if r.More && r.StdoutTail == "" && r.StderrTail == "" {
		fmt.Fprintf(&b, "\n[more output: call shell_wait with exec_id %s and cursor %s]\n", r.ExecID, r.Cursor)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(&b, "\n[%d bytes of output were not kept; write long output to a file]\n", r.Dropped)
	}
	return b.String()
}

func (r *ran) cut(b *strings.Builder, tail string) {
	if tail != "" {
		fmt.Fprintf(b, "\n[… output left out: call shell_wait with exec_id %s and cursor %s to read on; its end is:]\n%s", r.ExecID, r.Cursor, tail)
	}
}

func (r *ran) answer() *answer { return &answer{text: r.text(), fields: r} }

// command runs a command as the job of a call. One that takes longer than the call goes on.
func (s *Server) command(ctx context.Context, c *call, sandbox string, exec *jobs.Exec, wait time.Duration) (*ran, error) {
	job, box, err := s.carry(ctx, c, sandbox, exec, wait)
	var goes *running
	if errors.As(err, &goes) {
		return s.partOf(ctx, goes.job, cursor{})
	}
	if err != nil {
		return nil, err
	}
	return s.ended(ctx, job, box, cursor{})
}

// partOf is how a command stands whose job has not ended.
func (s *Server) partOf(ctx context.Context, job models.Job, from cursor) (*ran, error) {
	r := &ran{ExecID: job.ID, SandboxID: job.SandboxID, Running: true}
	var parts [2]piece
	for i, stream := range []providers.Stream{providers.Stdout, providers.Stderr} {
		out, err := s.c.Output(ctx, job.SandboxID, job.ID, providers.OutputQuery{Stream: stream, Offset: from[i], Max: maxHead})
		if err != nil { // it has not begun, or its worker is just being replaced: what it has written is there next time
			parts[i] = piece{begin: from[i], total: from[i]}
			continue
		}
		parts[i] = piece{begin: out.Begin, total: [2]int64{out.Exec.StdoutBytes, out.Exec.StderrBytes}[i], data: out.Data}
		r.DurationMS = out.Exec.DurationMS
	}
	r.fill(from, parts[0], parts[1])
	return r, nil
}

// ended is how a command or a cell ended.
func (s *Server) ended(ctx context.Context, job models.Job, box models.Sandbox, from cursor) (*ran, error) {
	if job.State != models.Succeeded && job.State != models.TimedOut || len(job.Result) == 0 && job.Unread == 0 {
		return nil, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult); err != nil {
		return nil, err
	}
	var res jobs.ExecResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return nil, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	r := &ran{ExecID: job.ID, SandboxID: job.SandboxID, Signal: res.Signal, TimedOut: job.State == models.TimedOut, OOMKilled: res.OOMKilled, DurationMS: res.DurationMS}
	if job.Kind == models.KindExec && !r.TimedOut {
		r.ExitCode = &res.ExitCode
	}
	out, errs := kept(job, job.Stdout, res.StdoutBytes), kept(job, job.Stderr, res.StderrBytes)
	r.Dropped = out.total + errs.total - int64(len(out.data)+len(errs.data))
	r.fill(from, out, errs)
	return r, nil
}

// kept is what a job has of an output: of a command the beginning, of a cell the end.
func kept(job models.Job, data []byte, total int64) piece {
	p := piece{total: total, data: data, last: true}
	if job.Kind == models.KindCode {
		p.begin = total - int64(len(data))
	}
	return p
}

// failure is the error of a job that has not succeeded.
func (s *Server) failure(job models.Job, box models.Sandbox) error {
	if job.State == models.Cancelled && box.State == models.SandboxFailed {
		why := "see its create job"
		if box.EndReason != nil {
			why = *box.EndReason
		}
		return problem.New(409, "sandbox_failed", "the sandbox could not be made: "+why)
	}
	return calls.Failure(job, box)
}

// waitOf is how long an argument wants to wait; 0 = as long as a call may.
func waitOf(seconds float64) time.Duration {
	if seconds <= 0 || seconds > patience.Seconds() {
		return patience
	}
	return time.Duration(seconds * float64(time.Second))
}
