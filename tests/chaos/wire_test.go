//go:build chaos

package chaos

import (
	"errors"
	"io"
	"net"
	"sync"
)

// wire is a socket that leads to a server, for one process alone, and can break.
type wire struct {
	to       string
	listener net.Listener
	served   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	gate  chan struct{} // nil = bytes flow; else until it is closed none do
}

func openWire(at, to string) (*wire, error) {
	l, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	w := &wire{to: to, listener: l, conns: map[net.Conn]bool{}}
	w.served.Go(w.serve)
	return w, nil
}

func (w *wire) serve() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.served.Go(func() { w.carry(from) })
	}
}

// carry joins one connection with one to the server until either side is done.
func (w *wire) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("unix", w.to)
	if err != nil {
		return // as if nobody listened
	}
	defer to.Close()
	w.note(from, to)
	defer w.forget(from, to)
	var both sync.WaitGroup
	both.Go(func() { w.pump(to, from) })
	both.Go(func() { w.pump(from, to) })
	both.Wait()
}

// pump moves bytes one way, and then the end of them. An end that is an error is the end of both ways.
func (w *wire) pump(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.pass()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.(*net.UnixConn).CloseWrite()
			return
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// pass waits while the wire is held.
func (w *wire) pass() {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (w *wire) note(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *wire) forget(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		delete(w.conns, c)
	}
}

// cut breaks all connections. New ones can be made at once.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

// hold stops all bytes, which wait, until what it returns is called: then they arrive after all.
func (w *wire) hold() (release func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	w.gate = gate
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.gate = nil
		w.mu.Unlock()
		close(gate)
	}
}

func (w *wire) close() {
	w.listener.Close()
	w.cut()
	w.served.Wait()
}
