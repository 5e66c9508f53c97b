package e2b

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"sandyard/providers/remote"
)

const trafficHeader = "E2b-Traffic-Access-Token"

// DialPort connects to an HTTP server on a port of the sandbox: requests and upgrades alone, for the backend has no
// other way to a port. What the connection carries goes to the sandbox's host there, with the token of its ports. A
// port on which nobody listens is providers.Invalid.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.Listens(ctx, port); err != nil {
		return nil, err
	}
	token, err := s.trafficToken(ctx)
	if err != nil {
		return nil, err
	}
	return remote.Door{
		Transport: s.p.transport, To: s.address(port), Marks: []string{`"sandboxId"`},
		Own: func(name string) bool { return strings.HasPrefix(name, "E2b-") },
		Rewrite: func(h http.Header) {
			if s.p.data != nil {
				h.Set("E2b-Sandbox-Id", s.backend)
				h.Set("E2b-Sandbox-Port", strconv.Itoa(int(port)))
			}
			if token != "" {
				h.Set(trafficHeader, token)
			}
		},
	}.Dial(), nil
}

// trafficToken is the token of the sandbox's ports; empty = they need none. Only the answer to create and connect tells
// it. Of a sandbox that runs connect changes no more than its timeout, which may become longer.
func (s *sandbox) trafficToken(ctx context.Context) (string, error) {
	if known, ok := s.p.refs.Get(s.id); ok && known.ID == s.backend && known.Traffic != "" {
		return known.Traffic, nil
	}
	a, err := s.p.apiConnect(ctx, s.backend)
	if err != nil || a.Traffic == nil {
		return "", err
	}
	if len(*a.Traffic) > maxSecret || !remote.Printable(*a.Traffic) {
		return "", errNotE2B
	}
	s.p.refs.Set(s.id, remote.Ref{ID: s.backend, Traffic: *a.Traffic})
	return *a.Traffic, nil
}
