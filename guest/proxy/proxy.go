// Package proxy is how programs in a sandbox reach the outside: an HTTP and SOCKS5 proxy on the sandbox's loopback. It
// decides nothing. Every connection is asked for over Dial, whose other end is the worker.
package proxy

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sandyard/duplex"
	"sandyard/guest/tunnel"
)

const (
	// maxConns is how many programs are served at once; the others wait until one is done.
	maxConns = 256
	// patience is how long a program may take to say what it wants.
	patience    = 15 * time.Second
	acceptPause = 100 * time.Millisecond // after a connection that could not be taken
	idle        = time.Minute
	maxHeader   = 64 << 10
)

// Dial asks the worker for a connection to host:port. A *tunnel.RefusedError says why there is none.
type Dial func(ctx context.Context, target string) (*tunnel.Conn, error)

// Server is a proxy.
type Server struct {
	dial      Dial
	log       *slog.Logger
	transport *http.Transport
	server    *http.Server
	web       *duplex.Handover // of what begins like HTTP
	conns     sync.WaitGroup
	mu        sync.Mutex
	open      map[net.Conn]struct{} // nil once closed
}

// New returns a proxy that asks dial for connections.
func New(dial Dial, log *slog.Logger) *Server {
	s := &Server{dial: dial, log: log, open: map[net.Conn]struct{}{}}
	s.transport = &http.Transport{
		DialContext:        func(ctx context.Context, _, addr string) (net.Conn, error) { return s.dial(ctx, addr) },
		DisableCompression: true, MaxIdleConns: 16, MaxIdleConnsPerHost: 4, IdleConnTimeout: 15 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
	s.server = &http.Server{
		ReadHeaderTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve serves the programs that connect to l until l is closed, and then ends what it serves.
func (s *Server) Serve(l net.Listener) error {
	s.web = duplex.NewHandover(l.Addr())
	var web sync.WaitGroup
	web.Go(func() { _ = duplex.Serve(s.server, s.web, http.HandlerFunc(s.serveHTTP)) })
	err := s.accept(l)
	s.closeAll()
	_ = s.server.Close()
	s.transport.CloseIdleConnections()
	s.conns.Wait()
	web.Wait()
	return err
}

func (s *Server) accept(l net.Listener) error {
	room := make(chan struct{}, maxConns)
	for {
		room <- struct{}{}
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // such as too many open files, which pass
			<-room
			<-time.After(acceptPause)
			continue
		}
		c := &counted{Conn: conn, done: sync.OnceFunc(func() { <-room })}
		s.conns.Go(func() { s.begin(c) })
	}
}

// begin finds out what the program speaks. SOCKS5 begins with a byte that no HTTP request begins with.
func (s *Server) begin(c *counted) {
	if !s.hold(c) {
		return
	}
	c.let = func() { s.letGo(c) }
	_ = c.SetReadDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c.Conn)
	first, err := in.Peek(1)
	_ = c.SetReadDeadline(time.Time{})
	c.in = in
	switch {
	case err != nil:
		_ = c.Close()
	case first[0] == socksVersion:
		s.serveSocks(c)
	default:
		s.web.Hand(c)
	}
}

func (s *Server) hold(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		_ = c.Close()
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *Server) letGo(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// closeAll ends every connection with a program, and with that what it is joined to.
func (s *Server) closeAll() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
	_ = s.web.Close()
}

// join carries bytes until the end of both; early is what the program has said already.
func (s *Server) join(c *counted, t *tunnel.Conn, early []byte) {
	defer c.Close()
	rest, _ := c.in.Peek(c.in.Buffered()) // what is buffered does not fail
	tcp, ok := c.Conn.(*net.TCPConn)
	if _, err := t.Write(append(early, rest...)); err != nil || !ok {
		_ = t.Close()
		return
	}
	_ = tcp.SetDeadline(time.Time{})
	tunnel.Join(t, tcp, func(int, bool) error { return nil })
}

// counted is a program's connection: it gives its place back when it is closed.
type counted struct {
	net.Conn

	in   *bufio.Reader
	done func()
	let  func()
}

func (c *counted) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite tells the program that nothing more will come.
func (c *counted) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.done()
	if c.let != nil {
		c.let()
	}
	return err
}
