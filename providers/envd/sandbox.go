// Package envd is the worker's view of a sandbox that runs Sandyard's guest: providers.Sandbox over envd's protocol
// with named commands. It reaches the guest over a raw byte stream.
//
// The guest runs next to hostile code and may itself be hostile: everything it says is bounded here again.
package envd

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/guest/link"
	"sandyard/guest/protocol"
	"sandyard/providers"

	"connectrpc.com/connect"
)

const (
	maxMessage   = 8 << 20  // bytes of one message of the guest
	maxHeader    = 64 << 10 // bytes of one answer's headers
	idleConns    = 32
	idlePatience = time.Minute
)

// Options says how a sandbox is used.
type Options struct {
	WorkDir string        // where commands start; empty = the guest's own
	User    string        // the name of the sandbox's user, for commands that ask for it by name
	Linger  time.Duration // how long a closed stream waits for the guest to close it, too; 0 = link.Linger
	Log     *slog.Logger  // nil logs nothing
}

// Sandbox is one sandbox. It implements providers.Sandbox.
type Sandbox struct {
	o       Options
	base    string
	http    *http.Client
	process processconnect.ProcessClient
	files   filesystemconnect.FilesystemClient

	conn    *link.Conn
	session *link.Streams
	outside outsiders
	done    chan struct{}
	once    sync.Once
}

var _ providers.Sandbox = (*Sandbox)(nil)

// Attach greets the guest at the other end of rw, an attached container's standard streams, and takes rw over. From
// then on every other worker that was attached to the same guest is superseded.
func Attach(ctx context.Context, rw io.ReadWriteCloser, o Options) (*Sandbox, error) {
	conn, err := link.Dial(ctx, rw)
	if err != nil {
		return nil, providers.Unavailable.Errorf("the sandbox does not answer: %w", err)
	}
	session, err := link.OpenStreams(conn, o.Linger)
	if err != nil {
		return nil, providers.Internal.Errorf("start the stream multiplexer: %w", errors.Join(err, conn.Close()))
	}
	s := &Sandbox{o: o, conn: conn, session: session, done: make(chan struct{})}
	s.connect(&http.Client{Transport: s.transport(), CheckRedirect: noRedirect}, "http://guest")
	go func() {
		<-session.Done()
		s.end()
	}()
	return s, nil
}

func (s *Sandbox) transport() *http.Transport {
	return &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return s.open(protocol.TargetGuest, 0) },
		DisableCompression:     true,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idlePatience,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// noRedirect makes a redirect an answer like any other: a guest has nowhere to send us.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (s *Sandbox) connect(hc *http.Client, baseURL string) {
	if s.o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	s.http, s.base = hc, baseURL
	options := []connect.ClientOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithAcceptCompression("gzip", nil, nil), // a small answer must not become a large one
	}
	s.process = processconnect.NewProcessClient(hc, baseURL, options...)
	s.files = filesystemconnect.NewFilesystemClient(hc, baseURL, options...)
}

// Ping says whether the guest answers. It waits for as long as ctx allows.
func (s *Sandbox) Ping(ctx context.Context) error {
	return s.call(ctx, http.MethodGet, protocol.HealthPath, nil, nil, 0)
}

// HeardSince says whether the guest has sent anything at all after t.
func (s *Sandbox) HeardSince(t time.Time) bool { return s.conn.Heard().After(t) }

// Done is closed when the link is dead: closed, cut, torn or taken over by another worker.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Close lets the sandbox go. Its commands go on.
func (s *Sandbox) Close() error {
	s.end()
	return s.session.Close()
}

func (s *Sandbox) end() {
	s.once.Do(func() {
		close(s.done)
		s.http.CloseIdleConnections()
	})
}

// DialPort connects to a TCP port on the sandbox's loopback. A port that nobody listens on is providers.Invalid.
func (s *Sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := s.open(protocol.TargetPort, port)
	if err != nil {
		return nil, s.unavailable(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	var answer [1]byte
	_, err = io.ReadFull(conn, answer[:])
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, s.unavailable(errors.Join(err, conn.Close()))
	}
	if answer[0] != protocol.PortOpen {
		return nil, providers.Invalid.Errorf("nothing listens on port %d of the sandbox: %w", port, errors.Join(net.ErrClosed, conn.Close()))
	}
	return conn, nil
}

// open opens a stream to a target.
func (s *Sandbox) open(target byte, port uint16) (net.Conn, error) {
	stream, err := s.session.Open()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint16([]byte{target}, port)); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return stream, nil
}

// unavailable is an answer that did not come.
func (s *Sandbox) unavailable(err error) error {
	select {
	case <-s.done:
		return providers.Unavailable.Errorf("the connection to the sandbox was lost: %w", err)
	default:
		return providers.Unavailable.Errorf("the sandbox does not answer: %w", err)
	}
}

// call makes a call and reads its answer, JSON of at most limit bytes, into out; nil = the answer says nothing. One that
// cannot be read counts as none.
func (s *Sandbox) call(ctx context.Context, method, target string, in, out any, limit int64) error {
	answer, err := s.send(ctx, method, target, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, limit)).Decode(out); err != nil {
		return s.unavailable(err)
	}
	return nil
}

// send makes a call whose request is in: bytes as they are, anything else as JSON, nothing where it is nil. The caller
// closes the body of the answer.
func (s *Sandbox) send(ctx context.Context, method, target string, in any) (*http.Response, error) {
	raw, ok := in.([]byte)
	if in == nil || ok {
		return s.do(ctx, method, target, bytes.NewReader(raw), nil)
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return s.do(ctx, method, target, bytes.NewReader(text), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
	})
}

// do makes one plain HTTP call; an answer other than 2xx is an error. The caller closes the body.
func (s *Sandbox) do(ctx context.Context, method, target string, body io.Reader, prepare func(*http.Request)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+target, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if prepare != nil {
		prepare(req)
	}
	answer, err := s.http.Do(req)
	if err != nil {
		return nil, s.unavailable(err)
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		return nil, httpError(answer)
	}
	return answer, nil
}
