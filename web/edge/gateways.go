package edge

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/gateway"
)

const (
	// silence is how long the machine of a gateway may leave what it was sent unacknowledged.
	silence    = 10 * time.Second
	lookEvery  = time.Second
	probeAfter = 4 * time.Second
	probeEvery = 2 * time.Second
	probes     = 3
)

// gateways are the open connections to gateways. One whose machine has gone silent is closed, where TCP alone would go
// on sending for a quarter of an hour. A quiet connection is no silent one: its machine acknowledges probes.
type gateways struct {
	log    *slog.Logger
	dialer net.Dialer
	mu     sync.Mutex
	open   map[*gatewayConn]struct{}
}

func newGateways(log *slog.Logger) *gateways {
	return &gateways{log: log, open: map[*gatewayConn]struct{}{}, dialer: net.Dialer{
		Timeout:         dialPatience,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes},
	}}
}

type gatewayConn struct {
	net.Conn
	of   *gateways
	once sync.Once
}

// Close implements net.Conn.
func (c *gatewayConn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		delete(c.of.open, c)
	})
	return c.Conn.Close()
}

// CloseWrite tells the gateway that nothing more will come.
func (c *gatewayConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// dial is for http.Transport.
func (g *gateways) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := g.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &gatewayConn{Conn: conn, of: g}
	g.mu.Lock()
	g.open[c] = struct{}{}
	g.mu.Unlock()
	return gateway.Deaf(c), nil
}

func (g *gateways) closeSilent(ctx context.Context) {
	for _, c := range g.list() {
		if !silent(c.Conn) {
			continue
		}
		g.log.WarnContext(ctx, "gateway does not respond, connection closed", "gateway", c.RemoteAddr().String())
		_ = c.Close()
	}
}

func (g *gateways) list() []*gatewayConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*gatewayConn, 0, len(g.open))
	for c := range g.open {
		all = append(all, c)
	}
	return all
}

// silent says whether something sent over c waits for its acknowledgement longer than it may. One who only does not
// take more, because his buffers are full, acknowledges all the same.
func silent(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	err = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil || info == nil {
		return false
	}
	return info.Unacked > 0 && time.Duration(info.Last_ack_recv)*time.Millisecond > silence
}
