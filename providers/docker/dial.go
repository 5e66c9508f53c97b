package docker

import (
	"context"
	"net"

	"sandyard/providers/envd"
)

// DialGuest opens a stream to the guest's own HTTP handler.
func (s *sandbox) DialGuest(ctx context.Context) (net.Conn, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (net.Conn, error) { return in.DialGuest(ctx) })
}
