package envd

import (
	"context"
	"net"
	"sync"

	"sandyard/guest/protocol"
)

// outsiders is the access token that the guest was told over this link.
type outsiders struct {
	mu    sync.Mutex
	token string
}

// DialGuest opens a stream to the guest's HTTP handler for outsiders: envd's own calls, each of which must come with the
// token. The guest is told the token before the first stream is opened, and remembers it when this link has ended; an
// empty one leaves it with what it has. What is sent over the stream cannot reach the calls of a worker.
func (s *Sandbox) DialGuest(ctx context.Context, token string) (net.Conn, error) {
	if err := s.outside.demand(ctx, token, s.Init); err != nil {
		return nil, err
	}
	conn, err := s.open(protocol.TargetEnvd, 0)
	if err != nil {
		return nil, s.unavailable(err)
	}
	return conn, nil
}

// demand makes the guest ask outsiders for the token.
func (o *outsiders) demand(ctx context.Context, token string, tell func(context.Context, Init) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token == "" || token == o.token {
		return nil
	}
	if err := tell(ctx, Init{AccessToken: &token}); err != nil {
		return err
	}
	o.token = token
	return nil
}
