package runloop

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"sandyard/providers/remote"
)

const tunnelHeader = "X-Runloop-Tunnel-Authorization"

// DialPort connects to an HTTP server on a port of the sandbox: requests and upgrades alone, for the backend has no
// other way to a port. What the connection carries goes through the sandbox's tunnel, with its token. A port on which
// nobody listens is providers.Invalid.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.Listens(ctx, port); err != nil {
		return nil, err
	}
	t, err := s.tunnel(ctx)
	if err != nil {
		return nil, err
	}
	to := *s.p.tunnels
	to.Host = fmt.Sprintf("%d-%s.%s", port, t.Key, to.Host)
	return remote.Door{
		Transport: s.p.transport, To: &to,
		Own: func(name string) bool { return name == tunnelHeader },
		Rewrite: func(h http.Header) {
			if t.Token != "" {
				h.Set(tunnelHeader, "Bearer "+t.Token)
			}
		},
	}.Dial(), nil
}

// tunnel is the sandbox's, which is opened where there is none. One that others have opened for everybody stays so.
func (s *sandbox) tunnel(ctx context.Context) (tunnel, error) {
	d, err := s.p.apiGet(ctx, s.backend)
	if err != nil {
		return tunnel{}, err
	}
	if t := d.Tunnel; t != nil && t.check() == nil && (t.Token != "" || t.Mode == "open") {
		return *t, nil
	}
	return s.p.apiTunnel(ctx, s.backend)
}
