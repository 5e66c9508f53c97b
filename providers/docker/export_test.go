package docker

import (
	"context"

	"sandyard/providers"
)

// EngineStats is what Measure asks the engine where the control groups cannot be seen.
func (p *Provider) EngineStats(ctx context.Context, ref string) (providers.Used, bool) {
	return p.engineStats(ctx, ref)
}
