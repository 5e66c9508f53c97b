package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"sandyard/guest/tunnel"
)

// connection is one that a sandbox has.
type connection struct {
	server *Server
	box    *box
	target target
	ip     netip.Addr
	tcp    *net.TCPConn
	active atomic.Int64 // when a byte last went through, in Unix nanoseconds
}

var errIdle = errors.New("the connection was idle for too long")

// carry passes bytes until both ends are done, the connection is cut or silent, or life ends.
func (c *connection) carry(life context.Context, stream net.Conn) {
	life, cut := context.WithCancelCause(life)
	defer cut(nil)
	t, err := tunnel.Accept(stream)
	if err != nil {
		c.cut()
		return
	}
	defer context.AfterFunc(life, func() {
		c.cut()
		_ = t.Close()
	})()
	defer c.watch(cut)()
	c.server.totals.connections.Add(1)
	c.box.connections.Add(1)
	tunnel.Join(t, c.tcp, func(n int, outward bool) error { return c.passed(life, n, outward) })
}

// cut breaks the connection off, on both sides.
func (c *connection) cut() {
	_ = c.tcp.SetLinger(0) // a reset
	_ = c.tcp.Close()
}

// watch cuts a connection that has fallen silent.
func (c *connection) watch(cut context.CancelCauseFunc) (stop func()) {
	idle := c.server.cfg.Idle
	c.active.Store(time.Now().UnixNano())
	ready := make(chan struct{})
	var timer *time.Timer
	timer = time.AfterFunc(idle, func() {
		<-ready
		if silent := time.Since(time.Unix(0, c.active.Load())); silent < idle {
			timer.Reset(idle - silent)
			return
		}
		cut(errIdle)
	})
	close(ready)
	return func() { timer.Stop() }
}

// passed counts a piece, and holds it back where the sandbox has used up its rate.
func (c *connection) passed(life context.Context, n int, outward bool) error {
	c.active.Store(time.Now().UnixNano())
	if outward {
		c.box.sent.Add(int64(n))
		c.server.totals.sent.Add(int64(n))
	} else {
		c.box.received.Add(int64(n))
		c.server.totals.received.Add(int64(n))
	}
	if c.box.flow == nil {
		return nil
	}
	return c.box.flow.WaitN(life, n)
}
