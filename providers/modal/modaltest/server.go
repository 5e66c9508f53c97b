// Package modaltest stands in Modal's place: the part of its gRPC API that Modal's Go client needs for sandboxes, over
// the sandboxes of another provider. Tests of the provider modal speak with it by that client.
package modaltest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sandyard/providers"
)

const (
	maxMessage = 100 << 20 // bytes, as the client has it
	pingsApart = 10 * time.Second
	tokenLife  = 24 * time.Hour
)

// Options fit one server.
type Options struct {
	Images       map[string]string // inner image by registry reference, or by the id of an image; others do not build
	WorkDir      string            // of sandboxes that ask for none; empty = the inner provider's
	MaxSandboxes int               // that live at one time; 0 = no limit
}

// Server answers as Modal does. It ends with its test, and its sandboxes with it.
type Server struct {
	URL         string // of the API: gRPC without TLS
	ConnectAddr string // where connect URLs are served: their hosts need not resolve
	TokenID     string
	TokenSecret string

	t     testing.TB
	inner providers.Provider
	o     Options
	token string         // the auth token
	work  sync.WaitGroup // requests to ports, and what calls leave behind
	life  context.Context

	mu     sync.Mutex
	closed bool
	faults map[string][]func() error
	apps   map[string]string // name by id
	images map[string]image  // by id
	boxes  []*sandbox        // oldest first
	doors  map[string]door   // by connect token
}

// Asked is what the create of a sandbox has asked for.
type Asked struct {
	App, Name, Image string // the image's registry reference, or its id
	WorkDir          string
	Command          []string // the stand-in does not run it
	Tags, Env        map[string]string
	Timeout          time.Duration
	CPU              float64 // cores
	MemoryMiB        int
	BlockNetwork     bool
	Definition       *pb.Sandbox // the rest of it
}

// New starts a server whose sandboxes are those of inner. Inner is to be closed after the test's own clean-up.
func New(t testing.TB, inner providers.Provider, o Options) *Server {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	s := &Server{
		TokenID: "ak-" + rand.Text(), TokenSecret: "as-" + rand.Text(), t: t, inner: inner, o: o,
		token: newToken(), life: life, faults: map[string][]func() error{}, apps: map[string]string{},
		images: map[string]image{}, doors: map[string]door{},
	}
	for ref, of := range o.Images {
		s.images[imageID(ref)] = image{ref: ref, inner: of}
	}
	t.Cleanup(s.start(end))
	return s
}

// Asked lists what was asked for, one for each sandbox that was made, oldest first.
func (s *Server) Asked() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Asked
	for _, b := range s.boxes {
		all = append(all, b.asked)
	}
	return all
}

// Fault lets f decide about the next call of a method, such as "SandboxCreateV2". An error of f is the answer, and
// nothing is done. One that is Dropped is the answer after all was done. Faults of one method are used up in order.
func (s *Server) Fault(method string, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], f)
}

type dropped struct{ error }

// Dropped marks what a fault answers in place of the true answer. The client repeats calls that end with some codes of
// gRPC, and calls that end with an error which has none.
func Dropped(err error) error { return dropped{err} }

// newToken is text in the form of a JSON Web Token, which the client reads for its end.
func newToken() string {
	claims := fmt.Sprintf(`{"exp":%d}`, time.Now().Add(tokenLife).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + rand.Text()
}

func newID() string { return strings.ToLower(rand.Text()) }

// start listens, and returns what ends all that was begun.
func (s *Server) start(end context.CancelFunc) (stop func()) {
	api, doors := s.listen(), s.listen()
	s.URL, s.ConnectAddr = "http://"+api.Addr().String(), doors.Addr().String()
	rpc := grpc.NewServer(
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream), grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
	)
	pb.RegisterModalClientServer(rpc, control{s: s})
	pb.RegisterTaskCommandRouterServer(rpc, router{s: s})
	web := &http.Server{
		Handler: s.newDoors(), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return s.life },
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateHijacked { // an upgrade, which the server does not end
				context.AfterFunc(s.life, func() { _ = c.Close() })
			}
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = rpc.Serve(api) })
	serving.Go(func() { _ = web.Serve(doors) })
	return func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		end()
		rpc.Stop()
		_ = web.Close()
		serving.Wait()
		s.work.Wait()
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		for _, b := range s.boxes {
			s.work.Go(func() { s.remove(ctx, b) })
		}
		s.work.Wait()
	}
}

func (s *Server) listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// enter counts a request, unless the server has ended.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Add(1)
	}
	return !s.closed
}

func (s *Server) unary(
	ctx context.Context, ask any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (answer any, err error) {
	err = s.call(ctx, info.FullMethod, func() (err error) {
		answer, err = handle(ctx, ask)
		return err
	})
	return answer, err
}

func (s *Server) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	return s.call(stream.Context(), info.FullMethod, func() error { return handle(srv, stream) })
}

// call does what a call asks for, unless its caller is unknown or there is a fault for it.
func (s *Server) call(ctx context.Context, method string, do func() error) error {
	if err := s.admit(ctx, method); err != nil {
		return err
	}
	s.mu.Lock()
	name, fault := path.Base(method), func() error { return nil }
	if waiting := s.faults[name]; len(waiting) > 0 {
		fault, s.faults[name] = waiting[0], waiting[1:]
	}
	s.mu.Unlock()
	err := fault()
	if lost, ok := errors.AsType[dropped](err); ok {
		_ = do() // nobody hears of it
		return lost.error
	}
	if err != nil {
		return err
	}
	return do()
}

// admit refuses callers of the control plane who do not have our tokens. The router knows tokens of its own.
func (s *Server) admit(ctx context.Context, method string) error {
	if !strings.HasPrefix(method, "/modal.client.ModalClient/") {
		return nil
	}
	sends := func(name, value string) bool {
		return slices.Contains(metadata.ValueFromIncomingContext(ctx, name), value)
	}
	known := sends("x-modal-token-id", s.TokenID) && sends("x-modal-token-secret", s.TokenSecret)
	if !known || path.Base(method) != "AuthTokenGet" && !sends("x-modal-auth-token", s.token) {
		return status.Error(codes.Unauthenticated, "Token ID is malformed or unknown")
	}
	return nil
}

// refusal is what the inner provider does not do, as Modal would say it.
func refusal(err error) error {
	e, code := providers.AsError(err), codes.InvalidArgument
	switch {
	case providers.IsGone(err):
		code = codes.NotFound
	case e.Class == providers.Capacity || e.Class == providers.Quota || e.Class == providers.TooManyExecs:
		code = codes.ResourceExhausted
	case e.Retryable():
		code = codes.Unavailable
	}
	return status.Error(code, e.Message)
}

// given is the error of a call whose caller has left.
func given(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }
