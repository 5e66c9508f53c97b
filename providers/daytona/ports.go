package daytona

import (
	"context"
	"net"
	"net/http"
	"strings"

	"sandyard/providers/remote"
)

// asProxy are headers of a request to a preview: its token, and that the program's own answer is wanted, in place of a
// page that warns browsers of it and of headers for other origins.
func asProxy(h http.Header, token string) {
	h.Set("X-Daytona-Preview-Token", token)
	h.Set("X-Daytona-Skip-Preview-Warning", "true")
	h.Set("X-Daytona-Disable-CORS", "true")
}

// DialPort connects to an HTTP server on a port of the sandbox: requests and upgrades alone, for the backend has no
// other way to a port. What the connection carries goes to the port's preview, with its token. A port on which nobody
// listens is providers.Invalid.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.Listens(ctx, port); err != nil {
		return nil, err
	}
	v, err := s.p.apiPreview(ctx, s.backend, port)
	if err != nil {
		return nil, err
	}
	to, err := s.p.outside.named(v.URL)
	if err != nil {
		return nil, err
	}
	return remote.Door{
		Transport: s.p.outside.transport, To: to,
		Own:     func(name string) bool { return strings.HasPrefix(name, "X-Daytona-") },
		Rewrite: func(h http.Header) { asProxy(h, v.Token) },
		Marks:   []string{`"DAYTONA_PROXY"`, `"sandboxId"`},
	}.Dial(), nil
}
