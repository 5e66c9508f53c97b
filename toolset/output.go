package toolset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sandyard/providers"
)

const (
	// MaxHead is how many bytes one answer has of an output from the cursor on.
	MaxHead = 24 << 10
	// MaxTail is how many it has of its end.
	MaxTail = 8 << 10
	// KeptOutput is what is kept of the output of a command, in bytes.
	KeptOutput = 8 << 20
	// Patience is how long a call waits for its work. It leaves room for all else within MaxCall.
	Patience = 20 * time.Second
	// MaxCall is how long a call takes at most: clients give up after half a minute.
	MaxCall = 25 * time.Second
)

// Cursor says which part of a command's outputs its caller has: bytes of stdout and of stderr.
type Cursor [2]int64

func (c Cursor) String() string { return fmt.Sprintf("%d.%d", c[0], c[1]) }

// ReadCursor reads the cursor of an answer; empty is the beginning.
func ReadCursor(text string) (Cursor, error) {
	var c Cursor
	if text == "" {
		return c, nil
	}
	first, second, ok := strings.Cut(text, ".")
	var errs [2]error
	c[0], errs[0] = strconv.ParseInt(first, 10, 64)
	c[1], errs[1] = strconv.ParseInt(second, 10, 64)
	if !ok || errors.Join(errs[:]...) != nil || c[0] < 0 || c[1] < 0 {
		return c, Invalid(
			"cursor",
			"must be the cursor of an earlier answer, or be left out to begin with the first byte",
		)
	}
	return c, nil
}

// Ran is how a command stands, and a part of its output.
type Ran struct {
	ExecID     string `json:"exec_id"`
	SandboxID  string `json:"sandbox_id,omitempty"`
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

// Piece is a part of one output.
type Piece struct {
	Begin, Total int64 // offset of the first byte; bytes written in all
	Data         []byte
	Last         bool // nothing comes behind Data
}

// take puts the bytes into text and tail, and returns the cursor behind text.
func (p Piece) take(from int64) (text, tail string, next int64, more bool) {
	data, begin := p.Data, p.Begin
	if skip := from - begin; skip > 0 {
		data, begin = data[min(skip, int64(len(data))):], begin+min(skip, int64(len(data)))
	}
	head := data
	if len(head) > MaxHead {
		head = data[:whole(data[:MaxHead])]
		if rest := data[len(head):]; p.Last {
			tail = Valid(rest[max(0, len(rest)-MaxTail):])
		}
	} else if !p.Last {
		head = data[:whole(data)]
	}
	next = max(from, begin+int64(len(head)))
	more = len(head) < len(data)
	if !p.Last { // the beginning of a letter waits for its end
		more = begin+int64(len(data)) < p.Total
	}
	return Valid(head), tail, next, more
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

// Valid is b as text; what is no UTF-8 is replaced.
func Valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// Clip is text of a length that a model may read.
func Clip(text string) string {
	if len(text) <= MaxHead {
		return text
	}
	cut := []byte(text)
	return Valid(cut[:whole(cut[:MaxHead-MaxTail])]) + "\n[…]\n" + Valid(cut[len(cut)-MaxTail:])
}

// Is says how the command stands.
func (r *Ran) Is(e providers.Exec) {
	r.Running, r.ExitCode, r.Signal, r.DurationMS = e.Running, e.ExitCode, e.Signal, e.DurationMS
	r.TimedOut, r.OOMKilled = e.TimedOut, e.OOMKilled
}

// Follow reads both outputs behind a cursor and how the command stands. The first byte of stdout is waited for.
func (r *Ran) Follow(
	from Cursor, wait time.Duration, read func(providers.OutputQuery) (providers.Output, error),
) error {
	var parts [2]Piece
	for i, stream := range []providers.Stream{providers.Stdout, providers.Stderr} {
		out, err := read(providers.OutputQuery{Stream: stream, Offset: from[i], Wait: wait})
		if err != nil {
			return err
		}
		wait = 0
		total := [2]int64{out.Exec.StdoutBytes, out.Exec.StderrBytes}[i]
		last := !out.Exec.Running && out.Begin+int64(len(out.Data)) >= total
		parts[i] = Piece{Begin: out.Begin, Total: total, Data: out.Data, Last: last}
		r.Is(out.Exec)
		r.Dropped += max(0, out.Begin-from[i])
	}
	r.Fill(from, parts[0], parts[1])
	return nil
}

// Fill puts both outputs behind a cursor into the answer.
func (r *Ran) Fill(from Cursor, stdout, stderr Piece) {
	var next Cursor
	var more [2]bool
	r.Stdout, r.StdoutTail, next[0], more[0] = stdout.take(from[0])
	r.Stderr, r.StderrTail, next[1], more[1] = stderr.take(from[1])
	r.Cursor, r.More = next.String(), more[0] || more[1]
}

// Text is the answer for the model.
func (r *Ran) Text() string {
	var b strings.Builder
	switch {
	case r.Running:
		fmt.Fprintf(
			&b,
			"The command still runs as %s. Call shell_wait with exec_id %s and cursor %s to follow it.\n",
			r.ExecID,
			r.ExecID,
			r.Cursor,
		)
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

func (r *Ran) cut(b *strings.Builder, tail string) {
	if tail != "" {
		fmt.Fprintf(
			b,
			"\n[… output left out: call shell_wait with exec_id %s and cursor %s to read on; its end is:]\n%s",
			r.ExecID,
			r.Cursor,
			tail,
		)
	}
}

// Answer shows it.
func (r *Ran) Answer() *Answer { return &Answer{Text: r.Text(), Fields: r} }

// Wait is how long an argument wants to wait; 0 = as long as a call may.
func Wait(seconds float64) time.Duration {
	if seconds <= 0 || seconds > Patience.Seconds() {
		return Patience
	}
	return time.Duration(seconds * float64(time.Second))
}
