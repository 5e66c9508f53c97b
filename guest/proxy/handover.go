package proxy

import (
	"net"
	"sync"
)

// handover is the listener of the HTTP server: it gets the connections that begin like HTTP.
type handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func newHandover(addr net.Addr) handover {
	return handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), once: &sync.Once{}}
}

func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }
