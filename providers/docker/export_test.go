package docker

import (
	"context"
	"time"

	"sandyard/providers"
)

// EngineStats is what Measure asks the engine where the control groups cannot be seen.
func (p *Provider) EngineStats(ctx context.Context, ref string) (providers.Used, bool) {
	return p.engineStats(ctx, ref)
}

// RefillOnce makes a member of the pool where this is a time to make one.
func (p *Provider) RefillOnce(ctx context.Context) (made bool) {
	made, _ = p.members.refillOne(ctx)
	return made
}

// Age makes the members of the pool older.
func (p *Provider) Age(by time.Duration) {
	for _, m := range p.pool.All() {
		if p.pool.Drop(m) {
			old := *m // somebody may be reading the other
			old.MadeAt = m.MadeAt.Add(-by)
			p.pool.Put(&old)
		}
	}
}
