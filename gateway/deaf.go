package gateway

import (
	"errors"
	"net"
	"sync/atomic"
)

// Deaf returns conn with a Write that goes on when the other side takes nothing any more: what it has said before it
// stopped listening is still to be read, such as an answer to a request that was too large. Whether the other side
// lives is for Read to say; once it has said so, writes fail.
func Deaf(conn net.Conn) net.Conn { return &deafConn{Conn: conn} }

type deafConn struct {
	net.Conn
	deaf  atomic.Bool
	ended atomic.Bool // nothing more is to be read
}

// Read implements io.Reader.
func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var timeout net.Error
	if err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
		c.ended.Store(true)
	}
	return n, err
}

// Write implements io.Writer.
func (c *deafConn) Write(p []byte) (int, error) {
	if c.deaf.Load() && !c.ended.Load() {
		return len(p), nil
	}
	n, err := c.Conn.Write(p)
	if err == nil || c.ended.Load() {
		return n, err
	}
	c.deaf.Store(true)
	return len(p), nil
}

// Close implements net.Conn.
func (c *deafConn) Close() error {
	c.ended.Store(true)
	return c.Conn.Close()
}

// CloseWrite tells the other side that nothing more will come; what it says can still be read.
func (c *deafConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
