package envd

import (
	"context"
	"net"

	"sandyard/guest/dialect"
	"sandyard/providers"
)

// DialGuest opens a stream to the guest's HTTP handler for outsiders: envd's own calls, behind the access token of
// Init. What is sent over it cannot reach the calls of a worker.
func (s *Sandbox) DialGuest(context.Context) (net.Conn, error) {
	if s.session == nil {
		return nil, providers.Errorf(providers.NotSupported, "streams to the guest lead only through an attached one")
	}
	conn, err := s.open(dialect.TargetEnvd, 0)
	if err != nil {
		return nil, s.unavailable(err)
	}
	return conn, nil
}
