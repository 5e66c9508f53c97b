package envd

import (
	"context"
	"net/http"

	"sandyard/guest/protocol"
)

// Claim gives a sandbox that was started in advance to its owner: env is that of every command from now on. Only the
// first claim counts; a repeated one, or one of a sandbox that was started for its owner, changes nothing and succeeds.
func (s *Sandbox) Claim(ctx context.Context, env map[string]string) error {
	return s.call(ctx, http.MethodPost, protocol.ClaimPath, protocol.Claim{Env: env}, nil, 0)
}
