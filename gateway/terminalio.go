package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/coder/websocket"

	"sandyard/providers"
)

const (
	maxTyped        = 1 << 20   // bytes of one message of a client
	maxControl      = 4 << 10   // of one that is no input
	terminalPiece   = 32 << 10  // bytes that are passed on at once
	terminalAhead   = 128 << 10 // bytes that are sent before the client has shown that it takes them
	terminalPing    = 30 * time.Second
	terminalSilence = 2 * time.Minute // for a client that neither takes nor answers anything
	typePatience    = 30 * time.Second
	byePatience     = 5 * time.Second
	terminalPause   = 200 * time.Millisecond // between two looks at a command whose output has broken off
	maxTerminalSize = 1000
)

// Close codes of terminals beyond those of WebSocket's own.
const (
	CloseSandboxGone = 4404 // the sandbox was deleted or has died
	ClosePaused      = 4409 // the sandbox was paused
	CloseDeleted     = 4410 // the terminal was deleted
)

// errLeft is the end of a connection whose client is gone.
var errLeft = errors.New("the client is gone")

// exited is the end of a terminal's command.
type exited struct{ exec providers.Exec }

func (e *exited) Error() string { return "the command has ended" }

// TerminalMessage is what is said beside a terminal's bytes, as a text message.
type TerminalMessage struct {
	Type     string `json:"type"` // ready, exit, skipped or error; from the client resize
	Terminal string `json:"terminal,omitempty"`
	ExecID   string `json:"exec_id,omitempty"`
	Pid      int    `json:"pid,omitempty"`
	Joined   *bool  `json:"joined,omitempty"` // the terminal was there before
	Offset   *int64 `json:"offset,omitempty"` // of the next byte of output
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	Code     string `json:"code,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Cols     int    `json:"cols,omitempty"`
	Rows     int    `json:"rows,omitempty"`
}

// TerminalPrefix begins the names that terminals have among a sandbox's commands.
const TerminalPrefix = "term_"

// serve carries bytes both ways until one side ends it. The end of ctx is that of the worker.
func (t *terminal) serve(ctx context.Context) {
	t.conn.SetReadLimit(maxTyped)
	t.at = t.from.Begin
	ending, end := context.WithCancelCause(ctx)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx)) // whose end breaks the connection off
	t.work.Go(func() { end(t.output(ending)) })
	t.work.Go(func() { end(t.input(ending, reading)) })
	t.work.Go(func() { end(t.keepAlive(ending)) })
	<-ending.Done()
	t.bye(ctx, context.Cause(ending))
	stop()
	t.endTail()
	_ = t.conn.CloseNow()
	t.work.Wait()
}

// bye tells the client how it ended.
func (t *terminal) bye(ctx context.Context, cause error) {
	var over *exited
	code, reason := websocket.StatusNormalClosure, "the command has ended"
	last := TerminalMessage{Type: "error"}
	switch {
	case errors.Is(cause, errLeft):
		return
	case errors.As(cause, &over):
		last = TerminalMessage{Type: "exit", ExitCode: over.exec.ExitCode, Signal: over.exec.Signal, Offset: &t.at}
	case ctx.Err() != nil:
		code, reason = websocket.StatusGoingAway, "the sandbox's worker is stopping; connect again"
	default:
		e := providers.AsError(cause)
		code, reason = closeCode(e.Class)
		last.Code, last.Detail = string(e.Class), e.Message
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), byePatience)
	defer cancel()
	if last.Code != "" || over != nil {
		_ = t.say(ctx, last)
	}
	_ = t.conn.Close(code, reason)
}

func closeCode(class providers.Class) (websocket.StatusCode, string) {
	switch class {
	case providers.NotFound, providers.Lost:
		return CloseSandboxGone, "the sandbox is gone"
	case providers.Paused:
		return ClosePaused, "the sandbox was paused"
	case providers.NoExec:
		return CloseDeleted, "the terminal was deleted"
	case providers.Unavailable, providers.Busy:
		return websocket.StatusServiceRestart, "the worker lost the connection to the sandbox; connect again"
	}
	return websocket.StatusInternalError, "an internal error occurred; connect again"
}

func (t *terminal) say(ctx context.Context, m TerminalMessage) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.send(ctx, websocket.MessageText, text)
}

// send waits for a client that does not read, but not for ever.
func (t *terminal) send(ctx context.Context, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, t.silence)
	defer cancel()
	if t.conn.Write(ctx, kind, b) != nil {
		return errLeft
	}
	t.moves.Add(1)
	return nil
}

// output passes on what the command writes, over as many links to the sandbox as it takes.
func (t *terminal) output(ctx context.Context) error {
	err := t.say(ctx, TerminalMessage{
		Type: "ready", Terminal: strings.TrimPrefix(t.ask.exec, TerminalPrefix), ExecID: t.ask.exec, Pid: t.pid, Joined: &t.joined, Offset: &t.at,
	})
	for err == nil {
		var whole bool
		before := t.at
		if whole, err = t.copy(ctx); err == nil {
			err = t.resume(ctx, whole, t.at > before)
		}
	}
	return err
}

// copy passes on what one stream holds, and says whether that has come to its end.
func (t *terminal) copy(ctx context.Context) (whole bool, err error) {
	buf := make([]byte, terminalPiece)
	for {
		n, err := t.from.Read(buf)
		if n > 0 {
			if err := t.send(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return false, err
			}
			t.at += int64(n)
			if t.ahead += n; t.ahead >= terminalAhead {
				t.ahead = 0
				if err := t.taken(ctx); err != nil {
					return false, err
				}
			}
		}
		if err != nil {
			return errors.Is(err, io.EOF), ctx.Err()
		}
	}
}

// taken returns when the client has taken what was sent, which its answer to a ping shows: else the kernels between it
// and us would hold many megabytes. While its input is held up no answer can be heard.
func (t *terminal) taken(ctx context.Context) error {
	answered := make(chan error, 1)
	t.work.Go(func() { answered <- t.ping(ctx) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-tick.C:
			if t.typing.Load() {
				return nil
			}
		}
	}
}

// ping returns when the client has answered. One who is silent for too long is gone, unless it is held up itself.
func (t *terminal) ping(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, t.silence)
	defer cancel()
	before := t.moves.Load()
	err := t.conn.Ping(asking)
	if err == nil || t.typing.Load() || t.moves.Load() != before {
		return ctx.Err()
	}
	return errLeft
}

// resume begins another stream where the one before has ended, unless the command has, too.
func (t *terminal) resume(ctx context.Context, whole, moved bool) error {
	_ = t.from.Close()
	e, err := t.inside.Exec(ctx, t.ask.exec, 0)
	switch {
	case err != nil:
		return err
	case whole && !e.Running && (!moved || t.at >= e.StdoutBytes):
		return &exited{e}
	case !moved:
		if err := pause(ctx, terminalPause); err != nil {
			return err
		}
	}
	next, err := t.inside.Tail(ctx, t.ask.exec, t.at)
	if err != nil {
		return err
	}
	t.from = next
	if next.Begin == t.at {
		return nil
	}
	t.at = next.Begin
	return t.say(ctx, TerminalMessage{Type: "skipped", Offset: &t.at})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// input passes on what the client types. A command that does not read holds the client up.
func (t *terminal) input(ctx, reading context.Context) error {
	for {
		kind, message, err := t.conn.Reader(reading)
		if err != nil {
			return errLeft
		}
		t.moves.Add(1)
		if kind == websocket.MessageText {
			err = t.control(ctx, message)
		} else {
			err = t.typed(ctx, message)
		}
		if err != nil {
			return err
		}
	}
}

func (t *terminal) typed(ctx context.Context, message io.Reader) error {
	buf := make([]byte, terminalPiece)
	for {
		n, err := message.Read(buf)
		if n > 0 {
			if err := t.feed(ctx, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errLeft
		}
	}
}

// feed types b. Repeated under its id it goes on where it was broken off.
func (t *terminal) feed(ctx context.Context, b []byte) error {
	t.inputs++
	t.typing.Store(true)
	defer t.typing.Store(false)
	in := providers.Input{ID: fmt.Sprintf("%s-%d", t.id, t.inputs), Data: b, Wait: typePatience}
	for {
		_, err := t.inside.Feed(ctx, t.ask.exec, in)
		switch providers.AsError(err).Class {
		case providers.Busy:
			if ctx.Err() != nil {
				return ctx.Err()
			}
		case providers.ExecEnded:
			return nil // its output says so
		default:
			return err
		}
	}
}

// control does what a text message says. What it does not say well is told, and changes nothing.
func (t *terminal) control(ctx context.Context, message io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(message, maxControl))
	if err == nil {
		_, err = io.Copy(io.Discard, message)
	}
	if err != nil {
		return errLeft
	}
	var m TerminalMessage
	err = json.Unmarshal(text, &m)
	switch {
	case err != nil || m.Type != "resize":
		err = providers.Invalid.Errorf(`text messages are JSON such as {"type":"resize","cols":80,"rows":24}; send typed input in binary messages`)
	case m.Cols < 1 || m.Rows < 1 || m.Cols > maxTerminalSize || m.Rows > maxTerminalSize:
		err = providers.Invalid.Errorf("cols and rows must be between 1 and %d", maxTerminalSize)
	default:
		err = t.resize(ctx, providers.TerminalSize{Cols: uint16(m.Cols), Rows: uint16(m.Rows)})
	}
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	e := providers.AsError(err)
	return t.say(ctx, TerminalMessage{Type: "error", Code: string(e.Class), Detail: e.Message})
}

// keepAlive notices a client that is gone without a word.
func (t *terminal) keepAlive(ctx context.Context) error {
	for {
		if err := pause(ctx, t.every); err != nil {
			return err
		}
		if err := t.ping(ctx); err != nil {
			return err
		}
	}
}
