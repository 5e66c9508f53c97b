package docker

import (
	"context"
	"sync"
	"time"
)

// tendsPerPatience is how often a waiting guest is spoken to before it would give its worker up.
const tendsPerPatience = 6

// tend speaks to the members, so that they go on waiting, and removes those that are of no more use.
func (p *members) tend(ctx context.Context) {
	tick := time.NewTicker(p.pool.Config().Patience / tendsPerPatience)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.tendAll(ctx)
		p.pool.Kick()
	}
}

func (p *members) tendAll(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for _, m := range p.pool.Surplus() {
		work.Go(func() { p.retire(ctx, m) })
	}
	for _, m := range p.pool.All() {
		work.Go(func() {
			if err := p.fresh(ctx, m); err != nil && ctx.Err() == nil && p.pool.Drop(m) {
				p.cfg.Logger.WarnContext(ctx, "pool container replaced", "container", m.Name, "error", err)
				p.retire(ctx, m)
			}
		})
	}
}
