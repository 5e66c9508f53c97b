package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"sandyard/guest/envdpb/process"
	"sandyard/guest/execs"
	"sandyard/guest/protocol"

	"connectrpc.com/connect"
)

func signalName(n int) string { return syscall.Signal(n).String() }

// Update resizes a command's terminal.
func (s *processService) Update(
	_ context.Context,
	req *connect.Request[process.UpdateRequest],
) (*connect.Response[process.UpdateResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if pty := req.Msg.GetPty(); pty.GetSize() != nil {
		err = e.Resize(*sizeOf(pty))
	}
	return connect.NewResponse(&process.UpdateResponse{}), connectError(err)
}

// SendInput writes to a command's standard input or terminal.
func (s *processService) SendInput(
	ctx context.Context,
	req *connect.Request[process.SendInputRequest],
) (*connect.Response[process.SendInputResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), connectError(appendInput(ctx, e, req.Msg.GetInput()))
}

// appendInput refuses what is meant for the other kind of command, as envd does.
func appendInput(ctx context.Context, e *execs.Exec, in *process.ProcessInput) error {
	var b []byte
	switch kind := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if e.HasTerminal() {
			return protocol.Errorf(protocol.ReasonInvalid, "the process runs on a terminal: send its input as pty, not as stdin")
		}
		b = kind.Stdin
	case *process.ProcessInput_Pty:
		if !e.HasTerminal() {
			return protocol.Errorf(protocol.ReasonInvalid, "the process has no terminal: send its input as stdin, not as pty")
		}
		b = kind.Pty
	default:
		return protocol.Errorf(protocol.ReasonInvalid, "the input is neither stdin nor pty")
	}
	return e.AppendStdin(ctx, bytes.NewReader(b))
}

// StreamInput writes a stream of inputs in their order.
func (s *processService) StreamInput(
	ctx context.Context,
	stream *connect.ClientStream[process.StreamInputRequest],
) (*connect.Response[process.StreamInputResponse], error) {
	var e *execs.Exec
	for stream.Receive() {
		var err error
		switch event := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			e, err = s.selected(event.Start.GetProcess())
		case *process.StreamInputRequest_Data:
			if e == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("input came before the process was named"))
			}
			err = connectError(appendInput(ctx, e, event.Data.GetInput()))
		}
		if err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&process.StreamInputResponse{}), stream.Err()
}

// SendSignal signals a command's process group.
func (s *processService) SendSignal(
	_ context.Context,
	req *connect.Request[process.SendSignalRequest],
) (*connect.Response[process.SendSignalResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGTERM:
		err = e.Signal(syscall.SIGTERM)
	case process.Signal_SIGNAL_SIGKILL:
		s.kill(e)
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("signal %s is not supported", req.Msg.GetSignal()))
	}
	if errors.Is(err, syscall.ESRCH) {
		err = nil // it ended meanwhile
	}
	return connect.NewResponse(&process.SendSignalResponse{}), connectError(err)
}

// killPatience is how long a call waits for the end of what it has killed, so that a list of the processes that is
// asked for next has it no more.
const killPatience = 2 * time.Second

// kill ends the command with all that it has started.
func (s *processService) kill(e *execs.Exec) {
	go e.Kill(0, "") // ends with the command
	select {
	case <-e.Done():
	case <-time.After(killPatience):
	}
}

// CloseStdin ends a command's standard input. A terminal has none to close: its end of input is a byte, 0x04.
func (s *processService) CloseStdin(
	_ context.Context,
	req *connect.Request[process.CloseStdinRequest],
) (*connect.Response[process.CloseStdinResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if e.HasTerminal() {
		return nil, connect.NewError(
			connect.CodeFailedPrecondition,
			fmt.Errorf("send 0x04 to end the input of a terminal: %w", os.ErrInvalid),
		)
	}
	e.CloseStdin()
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
