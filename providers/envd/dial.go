package envd

import (
	"context"
	"net"

	"sandyard/guest/dialect"
	"sandyard/providers"
)

// DialGuest opens a stream to the guest's own HTTP handler, for requests of others than this process.
func (s *Sandbox) DialGuest(context.Context) (net.Conn, error) {
	if s.session == nil {
		return nil, providers.Errorf(providers.NotSupported, "streams to the guest lead only through an attached one")
	}
	conn, err := s.open(dialect.TargetGuest, 0)
	if err != nil {
		return nil, s.unavailable(err)
	}
	return conn, nil
}
