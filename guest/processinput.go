package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"sandyard/guest/envdpb/process"
	"sandyard/guest/execs"

	"connectrpc.com/connect"
)

func signalName(n int) string { return syscall.Signal(n).String() }

// Update resizes a command's terminal.
func (s *processService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		err = e.Resize(execs.Size{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())})
	}
	return connect.NewResponse(&process.UpdateResponse{}), connectError(err)
}

// SendInput writes to a command's standard input or terminal.
func (s *processService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), connectError(appendInput(ctx, e, req.Msg.GetInput()))
}

func appendInput(ctx context.Context, e *execs.Exec, in *process.ProcessInput) error {
	b := in.GetStdin()
	if e.HasTerminal() {
		b = in.GetPty()
	}
	return e.AppendStdin(ctx, bytes.NewReader(b))
}

// StreamInput writes a stream of inputs in their order.
func (s *processService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
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
func (s *processService) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGTERM:
		err = e.Signal(syscall.SIGTERM)
	case process.Signal_SIGNAL_SIGKILL:
		e.Kill(0, "")
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("signal %s is not supported", req.Msg.GetSignal()))
	}
	if errors.Is(err, syscall.ESRCH) {
		err = nil // it ended meanwhile
	}
	return connect.NewResponse(&process.SendSignalResponse{}), connectError(err)
}

// CloseStdin ends a command's standard input. A terminal has none to close: its end of input is a byte, 0x04.
func (s *processService) CloseStdin(_ context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if e.HasTerminal() {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("send 0x04 to end the input of a terminal: %w", os.ErrInvalid))
	}
	e.CloseStdin()
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
