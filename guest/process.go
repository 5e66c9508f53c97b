package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sandyard/guest/envdpb/process"
	"sandyard/guest/execs"
	"sandyard/guest/files"
	"sandyard/guest/protocol"

	"connectrpc.com/connect"
)

// keepaliveHeader is envd's: the seconds between keepalive events on a quiet stream.
const keepaliveHeader = "Keepalive-Ping-Interval"

// keepaliveOf is the time between keepalive events that a request asks for, 0 for none.
func keepaliveOf(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get(keepaliveHeader), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// processService is envd's process.Process.
type processService struct {
	execs *execs.Registry
	paths *files.Tree // of envd's clients, whose work directories are named as in envd; nil for the worker
}

// Start runs a command and streams its events. A command without a name lives no longer than the request's deadline; a
// named one only loses a listener.
func (s *processService) Start(
	ctx context.Context,
	req *connect.Request[process.StartRequest],
	stream *connect.ServerStream[process.StartResponse],
) error {
	c, offsets, err := commandOf(req)
	if err == nil && s.paths != nil && c.Dir != "" {
		c.Dir, err = s.paths.Absolute(c.Dir)
	}
	if err != nil {
		return connectError(err)
	}
	e, err := s.execs.Start(c)
	if err != nil {
		return connectError(err)
	}
	if at, limited := ctx.Deadline(); limited && c.Name == "" {
		go e.Expire(time.Until(at), 0, deadlineReason) // also when its client has left before
	}
	stream.ResponseHeader().Set(protocol.AgeHeader, strconv.FormatInt(e.Age().Milliseconds(), 10))
	return events{req.Header(), stream.ResponseTrailer(), func(ev *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: ev})
	}}.stream(ctx, e, offsets)
}

// deadlineReason is the kill reason of a plain command whose deadline has passed.
const deadlineReason = "deadline"

// Connect streams the events of a running command: of a plain one from now on, of a named one from its beginning.
func (s *processService) Connect(
	ctx context.Context,
	req *connect.Request[process.ConnectRequest],
	stream *connect.ServerStream[process.ConnectResponse],
) error {
	e, err := s.selected(req.Msg.GetProcess())
	if err != nil {
		return err
	}
	return events{req.Header(), stream.ResponseTrailer(), func(ev *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: ev})
	}}.stream(ctx, e, [2]int64{})
}

// List answers with the running commands.
func (s *processService) List(
	context.Context,
	*connect.Request[process.ListRequest],
) (*connect.Response[process.ListResponse], error) {
	answer := &process.ListResponse{}
	for _, e := range s.execs.Live() {
		argv, env := e.Arguments()
		if len(argv) == 0 {
			continue // it has just ended
		}
		config := &process.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: env}
		if e.Command.Dir != "" {
			config.Cwd = &e.Command.Dir
		}
		info := &process.ProcessInfo{Config: config, Pid: uint32(e.Pid())}
		if e.Command.Tag != "" {
			info.Tag = &e.Command.Tag
		}
		answer.Processes = append(answer.Processes, info)
	}
	return connect.NewResponse(answer), nil
}

// selected finds the running command that envd's selector names.
func (s *processService) selected(by *process.ProcessSelector) (*execs.Exec, error) {
	if tag := by.GetTag(); tag != "" {
		if e, ok := s.execs.Find(func(e *execs.Exec) bool { return e.Command.Tag == tag }); ok {
			return e, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", tag))
	}
	pid := int(by.GetPid())
	if e, ok := s.execs.Find(func(e *execs.Exec) bool { return e.Pid() == pid }); ok {
		return e, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", pid))
}

// commandOf reads a Start request with its headers.
func commandOf(req *connect.Request[process.StartRequest]) (execs.Command, [2]int64, error) {
	config := req.Msg.GetProcess()
	c := execs.Command{
		Name: req.Header().Get(protocol.ExecHeader), Tag: req.Msg.GetTag(),
		Env: config.GetEnvs(), Dir: config.GetCwd(),
		Stdin: req.Msg.Stdin == nil || req.Msg.GetStdin(),
		Shell: req.Header().Get(protocol.ShellHeader) == "1",
		Merge: req.Header().Get(protocol.MergeHeader) == "1",
		Argv:  append([]string{config.GetCmd()}, config.GetArgs()...),
	}
	if c.Shell {
		c.Argv = config.GetArgs()
	}
	if pty := req.Msg.GetPty(); pty != nil {
		c.TTY = sizeOf(pty)
	}
	var offsets [2]int64
	for _, h := range []struct {
		name string
		to   *int64
	}{
		{protocol.MaxOutputHeader, &c.MaxOutput},
		{protocol.StdoutOffsetHeader, &offsets[execs.Stdout]},
		{protocol.StderrOffsetHeader, &offsets[execs.Stderr]},
	} {
		if err := readNumber(h.name, req.Header().Get(h.name), h.to); err != nil {
			return c, offsets, err
		}
	}
	return c, offsets, nil
}

// sizeOf is the size that a request gives a terminal, or the one that terminals have had for ever.
func sizeOf(pty *process.PTY) *execs.Size {
	size := pty.GetSize()
	if size == nil {
		return &execs.Size{Cols: 80, Rows: 24}
	}
	return &execs.Size{
		Cols: uint16(min(size.GetCols(), math.MaxUint16)),
		Rows: uint16(min(size.GetRows(), math.MaxUint16)),
	}
}

// events writes a command's life to a stream.
type events struct {
	request http.Header
	trailer http.Header
	send    func(*process.ProcessEvent) error
}

func (s events) stream(ctx context.Context, e *execs.Exec, offsets [2]int64) error {
	stop := func() {}
	begin := func() error {
		err := s.send(startEvent(e))
		if err == nil {
			stop = s.keepAlive()
		}
		return err
	}
	err := e.Follow(ctx, offsets, begin, func(c execs.Chunk) error { return s.send(dataEvent(e, c)) })
	stop()
	if err != nil {
		return err
	}
	select {
	case <-e.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	info := e.Info()
	if at, limited := ctx.Deadline(); limited && info.KillReason == deadlineReason && !time.Now().Before(at) {
		return context.DeadlineExceeded // as ctx says when its timer fires: also to a client that has lagged behind
	}
	report, err := json.Marshal(info)
	if err != nil {
		return err
	}
	s.trailer.Set(protocol.ReportTrailer, string(report))
	return s.send(endEvent(info))
}

// keepAlive sends keepalive events when the request asks for them; the returned function ends that.
func (s *events) keepAlive() (stop func()) {
	interval := keepaliveOf(s.request)
	if interval == 0 {
		return func() {}
	}
	var mu sync.Mutex
	plain := s.send
	s.send = func(ev *process.ProcessEvent) error {
		mu.Lock()
		defer mu.Unlock()
		return plain(ev)
	}
	send, done := s.send, make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = send(
					&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}},
				)
			}
		}
	})
	return func() {
		close(done)
		beats.Wait()
	}
}

func startEvent(e *execs.Exec) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{
		Start: &process.ProcessEvent_StartEvent{Pid: uint32(e.Pid())},
	}}
}

func dataEvent(e *execs.Exec, c execs.Chunk) *process.ProcessEvent {
	data := &process.ProcessEvent_DataEvent{}
	switch {
	case e.HasTerminal():
		data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: c.Data}
	case c.Stream == execs.Stdout:
		data.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: c.Data}
	default:
		data.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: c.Data}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}
}

// endEvent describes the end in envd's words: an exit code, or -1 and the signal's name.
func endEvent(info protocol.ExecInfo) *process.ProcessEvent {
	end := &process.ProcessEvent_EndEvent{
		ExitCode: int32(info.ExitCode), Exited: info.Signal == 0,
		Status: fmt.Sprintf("exit status %d", info.ExitCode),
	}
	if info.Signal != 0 {
		end.ExitCode = -1
		end.Status = "signal: " + signalName(info.Signal)
	}
	if info.ExitCode != 0 {
		end.Error = &end.Status
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}
