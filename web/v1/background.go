package v1

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
	"sandyard/web/workerclient"
)

// ExecList is the background execs of a sandbox.
type ExecList struct {
	Execs []providers.Exec `json:"execs" doc:"Oldest first; ended execs stay until they are deleted, at most the last 256"`
}

// ExecOutput is a piece of an exec's output.
type ExecOutput struct {
	Stream     string         `json:"stream" enum:"stdout,stderr"`
	Offset     int64          `json:"offset" doc:"Offset of the first byte of data; larger than requested if older bytes were dropped"`
	NextOffset int64          `json:"next_offset" doc:"The offset for the next read"`
	Data       string         `json:"data"`
	Encoding   string         `json:"encoding" enum:"utf-8,base64" doc:"base64 if the bytes are not valid UTF-8"`
	EOF        bool           `json:"eof" doc:"The exec has ended and data is its last output"`
	Exec       providers.Exec `json:"exec" doc:"The exec's current state"`
}

// ExecParam names an exec of a sandbox.
type ExecParam struct {
	ID   string `path:"id"`
	Exec string `path:"exec" maxLength:"64" pattern:"^(job_[0-9a-v]+|term_[a-z0-9][a-z0-9_-]*)$" patternDescription:"the id of the job that started the exec, or of a terminal term_ and its name" doc:"The id of the job that started the exec; for a terminal, term_ and its name. Reads also accept the job id of a code cell: its output is available until the next cell of its context begins"`
}

type showExecInput struct {
	ExecParam
	Wait string `query:"wait" doc:"How long to wait for the exec's end, such as 30s or 30, at most 120s" example:"30s"`
}

type outputInput struct {
	ExecParam
	Stream   string `query:"stream" enum:"stdout,stderr" default:"stdout"`
	Offset   int64  `query:"offset" minimum:"0" doc:"Offset in the stream to read from; use next_offset of the previous answer"`
	MaxBytes int    `query:"max_bytes" minimum:"0" maximum:"4194304" doc:"Most bytes to return; default 1 MiB"`
	Wait     string `query:"wait" doc:"How long to wait for the first byte, such as 30s or 30, at most 120s. Use it with next_offset to follow the output" example:"30s"`
}

// execWrite is a write on one exec whose body is a B.
type execWrite[B any] struct {
	SubmitParams
	ExecParam
	Body B
}

// StdinBody is the body of an input.
type StdinBody struct {
	Data     string `json:"data,omitempty" doc:"Appended to earlier input. Two writes that are submitted without waiting for the first may run in either order"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of data in this request; default utf-8"`
	EOF      bool   `json:"eof,omitempty" doc:"Close the input after data"`
	Submit
}

// SignalBody is the body of a signal.
type SignalBody struct {
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGUSR1; sent to the command's process group"`
	Submit
}

// WaitBody is the body of a wait.
type WaitBody struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"How long to wait; after that the job ends timed_out and the exec continues; default 300, at most 86400"`
	Submit
}

type deleteExecInput struct {
	WaitParam
	ExecParam
}

const execPath = "/v1/sandboxes/{id}/execs/{exec}"

// execs has the routes of commands and code, and what they have written.
type execs struct{ *core }

func (s *execs) addBackground() {
	rest.Route(s.api, "list-execs", "GET /v1/sandboxes/{id}/execs", tagWork,
		"List the background execs of a sandbox; this resumes a paused sandbox that has auto_resume", s.listExecs)
	rest.Route(s.api, "get-exec", "GET "+execPath, tagWork, "Get an exec, or wait for its end", s.getExec)
	rest.Route(s.api, "get-exec-output", "GET "+execPath+"/output", tagWork,
		"Read an exec's output from an offset, or follow it", s.getOutput)
	onExec(
		s.core,
		"exec-stdin",
		"/stdin",
		"Write to the standard input of a background exec",
		func(r kind.ExecRef, b *StdinBody) (kind.Args, Submit) {
			return &kind.ExecStdin{ExecRef: r, Data: b.Data, Encoding: b.Encoding, EOF: b.EOF}, b.Submit
		},
	)
	onExec(
		s.core,
		"signal-exec",
		"/signal",
		"Send a signal to an exec",
		func(r kind.ExecRef, b *SignalBody) (kind.Args, Submit) {
			return &kind.ExecSignal{ExecRef: r, Signal: b.Signal}, b.Submit
		},
	)
	onExec(
		s.core,
		"wait-exec",
		"/wait",
		"Submit a job that waits for the end of an exec, for example to get a callback",
		func(r kind.ExecRef, b *WaitBody) (kind.Args, Submit) {
			return &kind.ExecWait{ExecRef: r, TimeoutSeconds: b.TimeoutSeconds}, b.Submit
		},
	)
	write(s.core, rest.Operation("delete-exec", "DELETE "+execPath, tagWork,
		"Kill an exec with all its processes and delete its output"), s.deleteExec)
}

// onExec adds an operation that submits a job on one exec, whatever else the sandbox is doing.
func onExec[B any](s *core, id, path, summary string, parts func(kind.ExecRef, *B) (kind.Args, Submit)) {
	write(s, rest.Operation(id, "POST "+execPath+path, tagWork, summary),
		func(ctx context.Context, in *execWrite[B]) (*acceptedOutput, error) {
			args, fields := parts(kind.ExecRef{ExecID: in.Exec}, &in.Body)
			return s.submit(ctx, in.SubmitParams, fields, func(o jobs.Options) (models.Submitted, error) {
				return s.Jobs.Submit(ctx, in.ID, args, o)
			})
		})
}

func (s *execs) deleteExec(ctx context.Context, in *deleteExecInput) (*acceptedOutput, error) {
	return s.submit(ctx, SubmitParams{WaitParam: in.WaitParam}, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Submit(ctx, in.ID, &kind.ExecDelete{ExecRef: kind.ExecRef{ExecID: in.Exec}}, o)
	})
}

func (s *execs) listExecs(ctx context.Context, in *sandboxInput) (*rest.Output[ExecList], error) {
	list, err := workerclient.JSON[[]providers.Exec](ctx, s.Workers, in.ID, "/execs", 0)
	if err != nil {
		return nil, err
	}
	return rest.OK(ExecList{append([]providers.Exec{}, list...)}), nil
}

func (s *execs) getExec(ctx context.Context, in *showExecInput) (*rest.Output[providers.Exec], error) {
	wait, err := WaitParam{in.Wait}.duration(0)
	if err != nil {
		return nil, err
	}
	leave, err := s.Stack.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	e, err := s.execNow(ctx, in.ID, in.Exec, wait)
	if err != nil {
		return nil, err
	}
	return rest.OK(e), nil
}

// execNow returns how an exec stands, at its end or after the wait. One whose job has not started it yet is queued.
func (s *execs) execNow(ctx context.Context, sandboxID, exec string, wait time.Duration) (providers.Exec, error) {
	began := time.Now()
	e, err := workerclient.JSON[providers.Exec](ctx, s.Workers, sandboxID, "/execs/"+exec, wait)
	var unknown *problem.Problem
	if !errors.As(err, &unknown) || unknown.Code != string(providers.NoExec) {
		return e, err
	}
	j, lookup := s.Store.JobEnd(ctx, middleware.RequestOf(ctx).Tenant, exec)
	if lookup != nil || j.SandboxID != sandboxID || j.Kind != models.KindExec {
		return e, err
	}
	if left := wait - time.Since(began); !j.State.Terminal() && left > 0 {
		if j, lookup = s.Stack.Poll(ctx, s.Waiters.Wait, exec, left); lookup != nil {
			return e, lookup
		}
	}
	if !j.State.Terminal() {
		return providers.Exec{ID: exec, Queued: true}, nil
	}
	return workerclient.JSON[providers.Exec](ctx, s.Workers, sandboxID, "/execs/"+exec, max(0, wait-time.Since(began)))
}

func (s *execs) getOutput(ctx context.Context, in *outputInput) (*rest.Output[ExecOutput], error) {
	wait, err := WaitParam{in.Wait}.duration(0)
	if err != nil {
		return nil, err
	}
	leave, err := s.Stack.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := s.Workers.Bound(ctx, wait)
	defer cancel()
	out, err := s.readLetters(ctx, in.ID, in.Exec, in.query(wait))
	if err != nil {
		return nil, err
	}
	doc := ExecOutput{Stream: in.Stream, Exec: out.Exec, Offset: out.Begin}
	doc.fill(out.Data)
	return rest.OK(doc), nil
}

// readLetters is readOutput, but where only a part of a letter has come it waits for the rest, too.
func (s *execs) readLetters(
	ctx context.Context,
	sandboxID, exec string,
	q providers.OutputQuery,
) (providers.Output, error) {
	began := time.Now()
	out, err := s.readOutput(ctx, sandboxID, exec, q)
	if err != nil || !out.Exec.Running || len(out.Data) == 0 || wholeText(out.Data) > 0 {
		return out, err
	}
	rest := q
	rest.Offset, rest.Max, rest.Wait = out.Begin+int64(len(out.Data)), 1, max(0, q.Wait-time.Since(began))
	if _, err := s.readOutput(ctx, sandboxID, exec, rest); err != nil {
		return out, nil //nolint:nilerr // what has come is not lost
	}
	q.Wait = 0
	return s.readOutput(ctx, sandboxID, exec, q)
}

// readOutput reads a part of an exec's output, of at most q.Max bytes. Ctx bounds the wait, too.
func (s *core) readOutput(
	ctx context.Context,
	sandboxID, exec string,
	q providers.OutputQuery,
) (out providers.Output, err error) {
	query := url.Values{
		"stream": {strconv.Itoa(int(q.Stream))}, "offset": {strconv.FormatInt(q.Offset, 10)}, "max": {strconv.Itoa(q.Max)},
	}
	answer, err := s.Workers.Ask(ctx, sandboxID, "/execs/"+exec+"/output", query, q.Wait)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	if err := middleware.RequestOf(ctx).Held.Add(ctx, q.Max); err != nil {
		return out, err
	}
	out.Data, err = io.ReadAll(io.LimitReader(answer.Body, workerclient.MaxBody))
	if err == nil {
		err = json.Unmarshal([]byte(answer.Header.Get(gateway.ExecHeader)), &out.Exec)
	}
	if err == nil {
		out.Begin, err = strconv.ParseInt(answer.Header.Get(gateway.BeginHeader), 10, 64)
	}
	if err != nil {
		return out, workerclient.Unreachable("the worker's answer was cut off")
	}
	return out, nil
}

// defaultPiece is how many bytes of output one answer holds at most.
const defaultPiece = 1 << 20

func (in *outputInput) limit() int { return cmp.Or(in.MaxBytes, defaultPiece) }

func (in *outputInput) query(wait time.Duration) providers.OutputQuery {
	q := providers.OutputQuery{Stream: providers.Stdout, Offset: in.Offset, Max: in.limit(), Wait: wait}
	if in.Stream == "stderr" {
		q.Stream = providers.Stderr
	}
	return q
}

// fill puts the bytes into the document. A letter whose last bytes have not come yet is left to the next answer.
func (o *ExecOutput) fill(data []byte) {
	total := o.Exec.StdoutBytes
	if o.Stream == "stderr" {
		total = o.Exec.StderrBytes
	}
	if end := o.Offset + int64(len(data)); o.Exec.Running || end < total {
		if whole := wholeText(data); whole > 0 {
			data = data[:whole]
		}
	}
	text, encoding := encode(data)
	o.Data, o.Encoding, o.NextOffset = *text, encoding, o.Offset+int64(len(data))
	o.EOF = !o.Exec.Running && (len(data) == 0 || o.NextOffset >= total)
}

// wholeText is the length of b without a letter that is cut off at its end.
func wholeText(b []byte) int {
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

// Output reads a part of the output of a command that runs in a sandbox of the request's tenant.
func (s *core) Output(
	ctx context.Context,
	sandboxID, exec string,
	q providers.OutputQuery,
) (providers.Output, error) {
	ctx, cancel := s.Workers.Bound(ctx, q.Wait)
	defer cancel()
	return s.readOutput(ctx, sandboxID, exec, q)
}
