package envd

import (
	"context"
	"net"
	"net/http"

	"sandyard/guest/protocol"
)

// SetNetwork makes the guest offer programs a proxy to the outside, or no more. What they ask for comes to AcceptStream.
func (s *Sandbox) SetNetwork(ctx context.Context, on bool) error {
	return s.call(ctx, http.MethodPut, protocol.NetworkPath, protocol.Network{On: on}, nil, 0)
}

// AcceptStream returns the next stream that the guest opens, to ask for a connection over it (package tunnel).
func (s *Sandbox) AcceptStream() (net.Conn, error) {
	stream, err := s.session.Accept()
	if err != nil {
		return nil, err
	}
	return stream, nil
}
