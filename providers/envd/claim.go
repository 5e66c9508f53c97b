package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"sandyard/guest/protocol"
)

// Claim gives a sandbox that was started in advance to its owner: env is that of every command from now on. Only the
// first claim counts; a repeated one, or one of a sandbox that was started for its owner, changes nothing and succeeds.
func (s *Sandbox) Claim(ctx context.Context, env map[string]string) error {
	body, err := json.Marshal(protocol.Claim{Env: env})
	if err != nil {
		return fmt.Errorf("write the claim: %w", err)
	}
	answer, err := s.do(ctx, http.MethodPost, protocol.ClaimPath, bytes.NewReader(body), nil)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
