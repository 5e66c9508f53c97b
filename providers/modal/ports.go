package modal

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	vendor "github.com/modal-labs/modal-client/go"

	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/remote"
)

// newTransport reaches the hosts that Modal names for ports: public ones, or where the server is of this machine, names
// below localhost there, which not every resolver knows.
func newTransport(server string) *http.Transport {
	t := remote.Transport(scriptLimit)
	near := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	far := *near
	far.ControlContext = public
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err == nil && onThisMachine(server) && strings.HasSuffix(host, ".localhost") {
			return near.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		}
		return far.DialContext(ctx, network, address)
	}
	return t
}

func onThisMachine(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// public refuses to connect to what is no public address.
func public(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return netguard.Rules{}.CheckNamed(at.Addr())
}

// DialPort connects to an HTTP server on a port of the sandbox: requests and upgrades alone, for the backend has no
// other way to a port. What the connection carries goes to the sandbox's host at Modal, with a token in the place of
// the caller's Authorization. A port on which nobody listens is providers.Invalid.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.Listens(ctx, port); err != nil {
		return nil, err
	}
	bounded, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	door, err := s.box.CreateConnectToken(bounded, &vendor.SandboxCreateConnectTokenParams{Port: int(port)})
	if err != nil {
		return nil, s.Broken(ctx, err)
	}
	to, err := url.Parse(strings.TrimRight(door.URL, "/"))
	secure := err == nil && (to.Scheme == "https" || to.Scheme == "http" && onThisMachine(s.p.cfg.Server))
	if !secure || to.Host == "" || to.User != nil || to.RawQuery != "" || len(door.Token) > maxSecret ||
		!remote.Printable(door.Token) {
		return nil, errNotModal
	}
	return remote.Door{
		Transport: s.p.transport, To: to,
		Own:     func(name string) bool { return name == "Authorization" || strings.HasPrefix(name, "X-Modal-") },
		Rewrite: func(h http.Header) { h.Set("Authorization", "Bearer "+door.Token) },
	}.Dial(), nil
}

var _ interface {
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
} = (*sandbox)(nil)

var _ providers.Referrer = (*Provider)(nil)
