package duplex

import (
	"net"
	"sync"
)

// Handover is a net.Listener of connections that others have accepted or made.
type Handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover returns a Handover that says addr is its address.
func NewHandover(addr net.Addr) *Handover {
	return &Handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Hand waits until c is accepted. Once h is closed it closes c and returns false.
func (h *Handover) Hand(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		_ = c.Close()
		return false
	}
}

// Accept implements net.Listener.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *Handover) Addr() net.Addr { return h.addr }
