package envd

import (
	"context"
	"net/http"

	"sandyard/guest/protocol"
)

// Init is what a sandbox's calls go by; what is left out stays as it is.
type Init = protocol.Init

// Init tells the guest what its calls go by from now on, outsiders' calls included. It changes all that in names or,
// with an error, nothing; a guest that has taken a later one ignores it.
func (s *Sandbox) Init(ctx context.Context, in Init) error {
	return s.call(ctx, http.MethodPost, protocol.InitPath, in, nil, 0)
}
