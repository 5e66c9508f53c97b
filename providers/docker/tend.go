package docker

import (
	"context"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// sweepEvery is the time between looks for what dead workers have left of their pools.
const sweepEvery = time.Minute

// tend speaks to the members, so that they go on waiting, and removes those that are of no more use.
func (p *Provider) tend(ctx context.Context) {
	tick := time.NewTicker(p.pool.cfg.Patience / tendsPerPatience)
	defer tick.Stop()
	var swept time.Time
	for {
		if time.Since(swept) > sweepEvery {
			p.sweep(ctx)
			swept = time.Now()
		}
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
				p.cfg.Logger.WarnContext(ctx, "pool container is replaced", "container", m.name, "error", err)
				p.retire(ctx, m)
			}
		})
	}
}

// sweep removes members that no worker can hand out any more: those that have ended, which is what their guests do
// when their worker dies, and those that are too old.
func (p *Provider) sweep(ctx context.Context) {
	found, err := p.api.ContainerList(ctx, container.ListOptions{
		All:     true,
		Filters: filters.NewArgs(filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("label", labelPool)),
	})
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool is not swept", "error", err)
		return
	}
	now := sync.OnceValue(func() time.Time { return engineNow(ctx, p.api) })
	for _, c := range found {
		if _, isSandbox := sandboxOf(c.Names); isSandbox || !lost(c, now) || ctx.Err() != nil {
			continue
		}
		if err := p.remove(ctx, c.ID); err != nil {
			p.cfg.Logger.WarnContext(ctx, "pool container of a dead worker is left", "container", c.ID, "error", err)
			continue
		}
		p.sweptMembers.Add(1)
	}
}

func lost(c container.Summary, now func() time.Time) bool {
	age := now().Sub(time.Unix(c.Created, 0))
	switch statusOf(c.State) {
	case statusGone:
		return true
	case statusCreated:
		return age > createTimeout+greeting
	default:
		return age > 2*memberAge
	}
}

// engineNow is the time by the engine's clock, by which it tells when containers were made.
func engineNow(ctx context.Context, api *client.Client) time.Time {
	info, err := api.Info(ctx)
	if err != nil {
		return time.Time{} // then nothing is old
	}
	now, _ := time.Parse(time.RFC3339Nano, info.SystemTime) // zero as well
	return now
}
