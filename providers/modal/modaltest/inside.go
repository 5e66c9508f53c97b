package modaltest

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sandyard/providers"
)

const (
	mostOutput    = 32 << 20              // bytes that a command may write before they are collected
	outputPiece   = 1 << 20               // bytes in one message
	inputPiece    = 256 << 10             // bytes that are fed at once
	outputWait    = time.Minute           // of one look at the output
	lateKill      = time.Second           // after a command's timeout: the client's own clock goes first
	again         = 20 * time.Millisecond // before another try
	connectHost   = ".connect.localhost"  // below it each sandbox has a host
	authorization = "Authorization"
	bearer        = "Bearer "
)

// command is one that was started in a sandbox. The server's mutex guards it.
type command struct {
	name    string // in the inner sandbox
	behind  inside // nil = it is not started yet
	out     [2]output
	exit    *providers.Exec // nil at its end: it has ended with its sandbox
	over    bool            // all of it is here
	changed chan struct{}   // closed at the next change

	starting sync.Mutex
	feeding  sync.Mutex // guards what follows
	fed      uint64
	shut     bool // its input has ended
}

type output struct {
	data []byte
	over bool
}

type inside interface {
	providers.Background
	providers.Commands
}

func (c *command) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// router takes the commands for sandboxes.
type router struct {
	pb.UnimplementedTaskCommandRouterServer

	s *Server
}

// SandboxGetCommandRouterAccess leads to the router, which is at the address of the control plane. The client wants a
// name with https for it, and speaks without TLS all the same where the control plane is on this machine.
func (c control) SandboxGetCommandRouterAccess(
	_ context.Context, ask *pb.SandboxGetCommandRouterAccessRequest,
) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	b, err := c.s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	url := "https" + strings.TrimPrefix(c.s.URL, "http")
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: b.jwt, Url: url}.Build(), nil
}

// box is the sandbox of a task, for who has its token.
func (r router) box(ctx context.Context, task string) (*sandbox, error) {
	b := r.s.find(func(b *sandbox) bool { return b.task == task })
	switch {
	case b == nil:
		return nil, status.Errorf(codes.NotFound, "Task %s not found", task)
	case !slices.Contains(metadata.ValueFromIncomingContext(ctx, "authorization"), bearer+b.jwt):
		return nil, status.Error(codes.Unauthenticated, "the token is not that of the task")
	}
	return b, nil
}

// command is one that was started.
func (r router) command(ctx context.Context, task, exec string) (*command, error) {
	b, err := r.box(ctx, task)
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if c := b.commands[exec]; c != nil && c.behind != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "Exec %s not found", exec)
}

// TaskExecStart starts a command, once.
func (r router) TaskExecStart(
	ctx context.Context, ask *pb.TaskExecStartRequest,
) (*pb.TaskExecStartResponse, error) {
	b, err := r.box(ctx, ask.GetTaskId())
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	c := b.commands[ask.GetExecId()]
	if c == nil {
		c = &command{name: newID(), changed: make(chan struct{})}
		b.commands[ask.GetExecId()] = c
	}
	r.s.mu.Unlock()
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.behind == nil {
		err = r.s.launch(ctx, b, c, ask)
	}
	return &pb.TaskExecStartResponse{}, err
}

func (s *Server) launch(ctx context.Context, b *sandbox, c *command, ask *pb.TaskExecStartRequest) error {
	env, err := envOf(ask.GetSecretSources())
	switch {
	case err != nil:
		return err
	case ask.HasPtyInfo() || ask.GetContainerId() != "":
		return status.Error(codes.InvalidArgument, "the stand-in has no terminals and no other containers")
	case s.resultOf(b) != nil:
		return status.Errorf(codes.NotFound, "Task %s has finished", b.task)
	}
	cmd := providers.Command{
		Name: c.name, Argv: ask.GetCommandArgs(), Env: env, Dir: ask.GetWorkdir(), StdinOpen: true, MaxOutput: mostOutput,
		Merge: ask.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_STDOUT,
	}
	if limit := ask.GetTimeoutSecs(); limit > 0 {
		cmd.Timeout = time.Duration(limit)*time.Second + lateKill
	}
	box, err := s.inner.Open(ctx, b.inner)
	if err != nil {
		return refusal(err)
	}
	behind, ok := box.(inside)
	if !ok {
		return status.Error(codes.Unimplemented, "the inner provider has no commands in the background")
	}
	err = s.try(ctx, providers.TooManyExecs, func() error {
		_, err := behind.Launch(ctx, cmd)
		return err
	})
	if err != nil {
		return refusal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.behind = behind
	s.work.Go(func() { s.follow(b, c, ask) })
	return nil
}

// try does something again for as long as that answers an error of a class.
func (s *Server) try(ctx context.Context, class providers.Class, do func() error) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		err := do()
		if err == nil || providers.AsError(err).Class != class {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// follow collects what a command writes, until its end.
func (s *Server) follow(b *sandbox, c *command, ask *pb.TaskExecStartRequest) {
	var streams sync.WaitGroup
	streams.Go(func() {
		s.collect(b, c, providers.Stdout, ask.GetStdoutConfig() != pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL)
	})
	streams.Go(func() {
		s.collect(b, c, providers.Stderr, ask.GetStderrConfig() != pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_DEVNULL)
	})
	streams.Wait()
	_ = c.behind.Forget(b.life, c.name) // its output is here
	s.mu.Lock()
	defer s.mu.Unlock()
	c.over = true
	c.tell()
}

func (s *Server) collect(b *sandbox, c *command, from providers.Stream, keep bool) {
	for at := int64(0); ; {
		o, err := c.behind.Output(b.life, c.name, providers.OutputQuery{Stream: from, Offset: at, Wait: outputWait})
		if err != nil && b.life.Err() == nil {
			s.t.Logf("sandbox %s: a command ends by %v", b.id, err)
		}
		if err == nil && o.Begin > at {
			s.t.Errorf("sandbox %s: bytes %d to %d of a command's output are lost", b.id, at, o.Begin)
		}
		at = o.Begin + int64(len(o.Data))
		s.mu.Lock()
		to := &c.out[from]
		if keep {
			to.data = append(to.data, o.Data...)
		}
		if err == nil && !o.Exec.Running && len(o.Data) == 0 {
			c.exit, to.over = &o.Exec, true
		}
		to.over = to.over || err != nil
		c.tell()
		over := to.over
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// await waits until met, which is asked at every change of a command.
func (s *Server) await(ctx context.Context, c *command, met func() bool) error {
	for {
		s.mu.Lock()
		done, changed := met(), c.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return given(ctx)
		}
	}
}

// TaskExecStdioRead sends what a command writes, from an offset on.
func (r router) TaskExecStdioRead(
	ask *pb.TaskExecStdioReadRequest, to grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse],
) error {
	c, err := r.command(to.Context(), ask.GetTaskId(), ask.GetExecId())
	if err != nil {
		return err
	}
	from := &c.out[providers.Stdout]
	if ask.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		from = &c.out[providers.Stderr]
	}
	for at := ask.GetOffset(); ; {
		var piece []byte
		err := r.s.await(to.Context(), c, func() bool {
			piece = from.data[min(at, uint64(len(from.data))):]
			return len(piece) > 0 || from.over
		})
		if err != nil || len(piece) == 0 {
			return err
		}
		piece = piece[:min(len(piece), outputPiece)]
		if err := to.Send(pb.TaskExecStdioReadResponse_builder{Data: piece}.Build()); err != nil {
			return err
		}
		at += uint64(len(piece))
	}
}

// TaskExecWait answers at the end of a command. One that ends with its sandbox counts as killed.
func (r router) TaskExecWait(ctx context.Context, ask *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	c, err := r.command(ctx, ask.GetTaskId(), ask.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := r.s.await(ctx, c, func() bool { return c.over }); err != nil {
		return nil, err
	}
	killed := int32(syscall.SIGKILL)
	if c.exit == nil || c.exit.ExitCode == nil {
		return pb.TaskExecWaitResponse_builder{Signal: &killed}.Build(), nil
	}
	code := int32(*c.exit.ExitCode)
	if c.exit.Signal != "" {
		code -= 128
		return pb.TaskExecWaitResponse_builder{Signal: &code}.Build(), nil
	}
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}

// TaskExecStdinWrite feeds a command. What it has taken already, as the offset says, it does not take again.
func (r router) TaskExecStdinWrite(
	ctx context.Context, ask *pb.TaskExecStdinWriteRequest,
) (*pb.TaskExecStdinWriteResponse, error) {
	c, err := r.command(ctx, ask.GetTaskId(), ask.GetExecId())
	if err != nil {
		return nil, err
	}
	c.feeding.Lock()
	defer c.feeding.Unlock()
	if ask.GetOffset() > c.fed {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes were written so far", c.fed)
	}
	data := ask.GetData()[min(c.fed-ask.GetOffset(), uint64(len(ask.GetData()))):]
	for len(data) > 0 || ask.GetEof() && !c.shut {
		if c.shut {
			return nil, status.Error(codes.FailedPrecondition, "the input has ended")
		}
		piece := data[:min(len(data), inputPiece)]
		data = data[len(piece):]
		in := providers.Input{
			ID: c.name + "." + strconv.FormatUint(c.fed, 10), Data: piece, EOF: ask.GetEof() && len(data) == 0,
		}
		err := r.s.try(ctx, providers.Busy, func() error {
			_, err := c.behind.Feed(ctx, c.name, in)
			return err
		})
		switch class := providers.AsError(err).Class; {
		case err == nil:
		case class != providers.ExecEnded && class != providers.NoExec:
			return nil, refusal(err)
		case len(piece) > 0:
			return nil, status.Error(codes.FailedPrecondition, "the command has ended")
		}
		c.fed += uint64(len(piece))
		c.shut = in.EOF
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

// door leads to a port of a sandbox.
type door struct {
	box  *sandbox
	port uint16
}

func (c control) SandboxCreateConnectTokenV2(
	_ context.Context, ask *pb.SandboxCreateConnectTokenRequest,
) (*pb.SandboxCreateConnectTokenResponse, error) {
	s := c.s
	b, err := s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	_, at, _ := net.SplitHostPort(s.ConnectAddr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.result != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "Sandbox %s has already finished", b.id)
	}
	s.doors[token] = door{b, uint16(ask.GetPort())}
	url := "http://" + b.id + connectHost + ":" + at
	return pb.SandboxCreateConnectTokenResponse_builder{Url: url, Token: token}.Build(), nil
}

// doorOf finds where a request leads that has the token for it.
func (s *Server) doorOf(r *http.Request) (door, bool) {
	token, _ := strings.CutPrefix(r.Header.Get(authorization), bearer)
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.doors[token]
	return d, ok && strings.HasPrefix(r.Host, d.box.id+connectHost)
}

// newDoors serves connect URLs.
func (s *Server) newDoors() http.Handler {
	refuse := func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			d, _ := s.doorOf(p.In)
			p.Out.URL.Scheme, p.Out.URL.RawQuery = "http", p.In.URL.RawQuery
			p.Out.URL.Host = net.JoinHostPort(d.box.id, strconv.Itoa(int(d.port)))
			p.Out.Header.Del(authorization)
		},
		Transport:     &http.Transport{DialContext: s.dial, DisableKeepAlives: true, DisableCompression: true},
		FlushInterval: -1, ErrorHandler: refuse,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.work.Done()
		if _, ok := s.doorOf(r); !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 always can
		proxy.ServeHTTP(w, r)
	})
}

// dial connects to a port of the sandbox whose id is the host.
func (s *Server) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	id, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	b := s.find(func(b *sandbox) bool { return b.id == id && b.result == nil })
	if err != nil || b == nil {
		return nil, errors.Join(err, providers.ErrNotFound)
	}
	box, err := s.inner.Open(ctx, b.inner)
	if err != nil {
		return nil, err
	}
	dialer, ok := box.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		return nil, providers.NotSupported.Errorf("the inner provider reaches no ports")
	}
	return dialer.DialPort(ctx, uint16(port))
}
