package duplex

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Bounds of what is read and thrown away for a caller that was answered and goes on sending.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 256 << 20
)

// Lingering is l with connections that can close so that the last answer arrives: one that is closed with unread bytes
// is reset, and a caller that still sends would see the reset, not the answer.
func Lingering(l net.Listener) net.Listener { return lingering{l} }

// LingerAfter makes a connection of such a listener wait at its close until its caller is done.
func LingerAfter(c net.Conn) {
	if c, ok := c.(*lingerConn); ok {
		c.linger.Store(true)
	}
}

// Underlying is the connection that the listener below a lingering one accepted.
func Underlying(c net.Conn) net.Conn {
	if c, ok := c.(*lingerConn); ok {
		return c.Conn
	}
	return c
}

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

// Close implements net.Conn.
func (c *lingerConn) Close() error {
	if c.linger.Swap(false) && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// CloseWrite tells the other side that nothing more will come.
func (c *lingerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
