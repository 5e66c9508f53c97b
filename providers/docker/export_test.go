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
	made, _ = p.refillOne(ctx)
	return made
}

// Age makes the members of the pool older.
func (p *Provider) Age(by time.Duration) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	for _, s := range p.pool.shelves {
		for i, m := range s.idle {
			old := *m // somebody may be reading the other
			old.madeAt = m.madeAt.Add(-by)
			s.idle[i] = &old
		}
	}
}

// Settle lets the last create have ended at that time.
func (p *Provider) Settle(ended time.Time) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.pool.ended = ended
	p.pool.kick()
}

// Lacks says whether this is a time to make a member of the pool.
func (p *Provider) Lacks() bool {
	_, lacking := p.pool.lacking()
	return lacking
}
