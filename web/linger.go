package web

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Bounds of what is read and thrown away for a client that goes on sending.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 256 << 20
)

// lingering is a listener whose connections can close so that the last answer arrives. A connection that is closed
// with unread bytes is reset, and a client that still sends its too large body would see the reset, not the answer.
type lingering struct{ net.Listener }

// Accept implements net.Listener.
func (l lingering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingerConn{Conn: c}, nil
}

type lingerConn struct {
	net.Conn
	linger atomic.Bool
}

// lingerAfter makes the connection wait at its close until its client is done.
func lingerAfter(c net.Conn) {
	if c, ok := c.(*lingerConn); ok {
		c.linger.Store(true)
	}
}

// Close implements net.Conn.
func (c *lingerConn) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Swap(false) {
		if half.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
	}
	return c.Conn.Close()
}
