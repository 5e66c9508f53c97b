// Package faultproxy is the connection of a test to its PostgreSQL, Redis or Docker engine, which breaks between two
// messages where the test says: before the server has seen a call, or after the server has carried it out and before
// its answer has come.
package faultproxy

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Call is what a client asks on one connection before it must wait for an answer: the text of its SQL statements, or a
// Redis command with its arguments.
type Call struct {
	Text string
}

// Fault is what becomes of a call.
type Fault int

// The faults.
const (
	None      Fault = iota
	CutBefore       // the server never sees the call, and the connection ends
	CutAfter        // the server carries the call out, and the connection ends without an answer
	Hang            // the server never sees the call, and nobody is told
	HangAfter       // the server carries the call out, and the answer never comes
)

// Proxy stands between clients and one server. It belongs to one test.
type Proxy struct {
	network, addr string
	split         func() splitter
	listener      net.Listener
	work          sync.WaitGroup

	mu     sync.Mutex
	decide func(Call) Fault
	lines  map[*line]bool
	away   bool
}

// splitter takes a client's bytes apart. It returns the first message of b, and the call that ends with it; n = 0 asks
// for more bytes.
type splitter interface {
	next(b []byte) (n int, call *Call)
}

// Postgres stands before the database at url, which must name a unix socket, and returns the URL to connect to instead.
func Postgres(t testing.TB, dsn string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	const socket = ".s.PGSQL.5432"
	q := u.Query()
	p := open(t, "unix", filepath.Join(q.Get("host"), socket), socket, func() splitter { return &pgSplitter{} })
	q.Set("host", filepath.Dir(p.listener.Addr().String()))
	u.RawQuery = q.Encode()
	return p, u.String()
}

// Redis stands before the server at addr and returns the unix socket to connect to instead.
func Redis(t testing.TB, network, addr string) (*Proxy, string) {
	t.Helper()
	p := open(t, network, addr, "redis.sock", func() splitter { return respSplitter{} })
	return p, p.listener.Addr().String()
}

// Engine stands before the Docker engine at host, which must be a unix socket, and returns the address to use instead.
// It does not take HTTP apart: each piece that a client sends is a call without a text.
func Engine(t testing.TB, host string) (*Proxy, string) {
	t.Helper()
	path, local := strings.CutPrefix(host, "unix://")
	if !local {
		t.Fatalf("the engine is at %s, not at a socket of this machine", host)
	}
	p := open(t, "unix", path, "docker.sock", func() splitter { return pieces{} })
	return p, "unix://" + p.listener.Addr().String()
}

// pieces splits nothing.
type pieces struct{}

func (pieces) next(b []byte) (n int, call *Call) { return len(b), &Call{} }

func open(t testing.TB, network, addr, socket string, split func() splitter) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "wire") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{network: network, addr: addr, split: split, listener: l, lines: map[*line]bool{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		p.close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// On lets decide say what becomes of each call from now on; nil = nothing happens to any. It is asked by many
// goroutines at once.
func (p *Proxy) On(decide func(Call) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Away cuts all connections and takes no new ones, until Back.
func (p *Proxy) Away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for l := range p.lines {
		l.cut()
	}
}

// Back ends Away, and cuts what hangs.
func (p *Proxy) Back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
	for l := range p.lines {
		if l.hangs() {
			l.cut()
		}
	}
}

func (p *Proxy) ask(c Call) Fault {
	p.mu.Lock()
	decide := p.decide
	p.mu.Unlock()
	if decide == nil {
		return None
	}
	return decide(c)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &line{client: client, server: server, over: make(chan struct{})}
	defer l.cut()
	if !p.join(l) {
		return
	}
	defer p.leave(l)
	p.work.Go(l.answers)
	l.calls(p.split(), p.ask)
}

func (p *Proxy) join(l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines[l] = true
	return !p.away
}

func (p *Proxy) leave(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lines, l)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.Away()
	p.work.Wait()
}
