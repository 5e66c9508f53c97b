package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/guest/envdpb/process"
	"sandyard/guest/protocol"
	"sandyard/providers"

	"connectrpc.com/connect"
)

const (
	killGrace = 2 * time.Second
	// killPatience is how long a guest may take to kill a tree, the grace included; one that needs more is broken. Under
	// gVisor hundreds of processes take most of it.
	killPatience = time.Minute
	maxReport    = 64 << 10 // bytes
	maxExecList  = 16 << 20 // bytes

	reasonTimeout = "timeout"
)

// Run is providers.Commands.Run. A link that dies meanwhile is providers.Unavailable: the command goes on, and a Run
// over a new link finds its result.
func (s *Sandbox) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	req, err := s.startRequest(cmd)
	if err != nil {
		return providers.Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{sandbox: s, cmd: cmd, cancel: cancel}
	defer r.beside.Wait()
	defer cancel(nil)
	stream, err := s.process.Start(ctx, req)
	if err != nil {
		return providers.Result{}, s.callError(err)
	}
	defer stream.Close()
	return r.follow(ctx, stream)
}

// Start is providers.Starter.Start: it lets go of the command once the guest says that it runs.
func (s *Sandbox) Start(ctx context.Context, cmd providers.Command) error {
	req, err := s.startRequest(cmd)
	if err != nil {
		return err
	}
	ctx, letGo := context.WithCancel(ctx)
	defer letGo()
	stream, err := s.process.Start(ctx, req)
	if err != nil {
		return s.callError(err)
	}
	defer stream.Close()
	for stream.Receive() {
		switch stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Start, *process.ProcessEvent_End:
			return nil
		}
	}
	if err := stream.Err(); err != nil {
		return s.callError(err)
	}
	return s.callError(io.ErrUnexpectedEOF)
}

// Kill is providers.Commands.Kill; it returns when nothing of the command is left.
func (s *Sandbox) Kill(ctx context.Context, name string) error {
	return s.kill(ctx, name, "kill")
}

func (s *Sandbox) kill(ctx context.Context, name, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	query := url.Values{"grace_ms": {strconv.FormatInt(killGrace.Milliseconds(), 10)}, "reason": {reason}}
	return s.tellExec(ctx, http.MethodPost, name, "/kill?"+query.Encode(), nil)
}

// Forget is providers.Commands.Forget. A command that is still running is providers.Busy.
func (s *Sandbox) Forget(ctx context.Context, name string) error {
	return s.tellExec(ctx, http.MethodDelete, name, "", nil)
}

// tellExec makes a call about one command that answers nothing; that the guest does not know it is a success.
func (s *Sandbox) tellExec(ctx context.Context, method, name, rest string, in []byte) error {
	err := s.execCall(ctx, method, name, rest, in, nil)
	if errors.Is(err, providers.ErrNoExec) {
		return nil
	}
	return err
}

// run is one Run under way.
type run struct {
	sandbox *Sandbox
	cmd     providers.Command
	cancel  context.CancelCauseFunc
	beside  sync.WaitGroup // the timeout and the input
	result  providers.Result
}

type startStream = connect.ServerStreamForClient[process.StartResponse]

// follow reads the command's events to the end of the stream.
func (r *run) follow(ctx context.Context, stream *startStream) (providers.Result, error) {
	started, ended := false, false
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Start:
			if !started {
				started = true
				if r.cmd.Started != nil {
					r.cmd.Started()
				}
				r.begin(ctx, age(stream.ResponseHeader()))
			}
		case *process.ProcessEvent_Data:
			r.result.Stdout = r.keep(r.result.Stdout, event.Data.GetStdout())
			r.result.Stderr = r.keep(r.result.Stderr, event.Data.GetStderr())
		case *process.ProcessEvent_End:
			ended = true
		}
	}
	if err := stream.Err(); err != nil || !ended {
		return providers.Result{}, r.broken(ctx, err)
	}
	return r.finish(stream.ResponseTrailer().Get(protocol.ReportTrailer))
}

// broken explains a stream without an end: what cut it knows more than the stream does.
func (r *run) broken(ctx context.Context, err error) error {
	if own, ok := errors.AsType[*providers.Error](context.Cause(ctx)); ok {
		return own
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return r.sandbox.callError(err)
}

// age is how long the command had been running when we attached to it.
func age(h http.Header) time.Duration {
	ms, err := strconv.ParseInt(h.Get(protocol.AgeHeader), 10, 64)
	if err != nil || ms < 0 || ms > (1<<31)*1000 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// keep appends what the limit allows, whatever the guest sends.
func (r *run) keep(kept, more []byte) []byte {
	room := maxOutput(r.cmd) - int64(len(kept))
	return append(kept, more[:min(int64(len(more)), room)]...)
}

// begin starts the clock and the input of a command that runs.
func (r *run) begin(ctx context.Context, age time.Duration) {
	if r.cmd.Timeout > 0 {
		r.beside.Go(func() { r.watch(ctx, r.cmd.Timeout-age) })
	}
	if len(r.cmd.Stdin) > 0 {
		r.beside.Go(func() { r.feed(ctx) })
	}
}

// watch kills the command when its time is up. The stream then ends by itself; a guest that lets it go on is cut off.
func (r *run) watch(ctx context.Context, left time.Duration) {
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	if err := r.sandbox.kill(ctx, r.cmd.Name, reasonTimeout); err != nil {
		r.cancel(err)
		return
	}
	timer.Reset(killPatience)
	select {
	case <-ctx.Done():
	case <-timer.C:
		r.cancel(providers.Unavailable.Errorf("the sandbox did not end a command that it had killed"))
	}
}

// feed sends the whole input; of a command that we attached to the guest skips what it has.
func (r *run) feed(ctx context.Context) {
	err := r.sandbox.tellExec(ctx, http.MethodPost, r.cmd.Name, "/stdin?offset=0&eof=1", r.cmd.Stdin)
	if err != nil {
		r.cancel(err)
	}
}

// finish completes the result with the guest's report.
func (r *run) finish(report string) (providers.Result, error) {
	var info protocol.ExecInfo
	if len(report) > maxReport || json.Unmarshal([]byte(report), &info) != nil {
		return providers.Result{}, providers.Internal.Errorf("the sandbox did not report how the command ended")
	}
	r.result.ExitCode = info.ExitCode & 0xff
	if info.Signal > 0 {
		r.result.Signal = signalName(info.Signal)
	}
	r.result.TimedOut = info.KillReason == reasonTimeout
	r.result.OOMKilled = info.OOMKills > 0
	r.result.StdoutBytes = max(info.StdoutBytes, int64(len(r.result.Stdout)))
	r.result.StderrBytes = max(info.StderrBytes, int64(len(r.result.Stderr)))
	r.result.Duration = milliseconds(info.DurationMs)
	return r.result, nil
}

func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
