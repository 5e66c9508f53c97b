package docker

import (
	"context"
	"sync"
	"time"
)

// tend speaks to the members, so that they go on waiting, and removes those that are of no more use.
func (p *Provider) tend(ctx context.Context) {
	tick := time.NewTicker(p.pool.cfg.Patience / tendsPerPatience)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.tendAll(ctx)
		p.pool.kick()
	}
}

func (p *Provider) tendAll(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for _, m := range p.pool.surplus() {
		work.Go(func() { p.retire(ctx, m) })
	}
	for _, m := range p.pool.all() {
		work.Go(func() {
			if err := p.fresh(ctx, m); err != nil && ctx.Err() == nil && p.pool.drop(m) {
				p.cfg.Logger.WarnContext(ctx, "pool container replaced", "container", m.name, "error", err)
				p.retire(ctx, m)
			}
		})
	}
}
