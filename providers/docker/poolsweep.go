package docker

import (
	"context"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"sandyard/providers/docker/pool"
)

// sweepEvery is the time between looks for what dead workers have left of their pools.
const sweepEvery = time.Minute

// sweepPools looks for that until ctx ends, beside the upkeep of our own pool: members that nobody speaks to end.
func (p *members) sweepPools(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		p.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes members that no worker can hand out any more: those that have ended, which is what their guests do
// when their worker dies, and those that are too old.
func (p *members) sweep(ctx context.Context) {
	found, err := p.listPools(ctx)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool not swept", "error", err)
		return
	}
	now := sync.OnceValue(func() time.Time { return engineNow(ctx, p.api) })
	var over []container.Summary
	for _, c := range found {
		if _, isSandbox := sandboxOf(c.Names); !isSandbox && lost(c, now) {
			over = append(over, c)
		}
	}
	removed, err := removeAll(ctx, over, func(ctx context.Context, c container.Summary) (bool, error) {
		return true, p.remove(ctx, c.ID)
	})
	p.sweptMembers.Add(int64(removed))
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool containers of dead workers not removed", "error", err)
	}
}

func (p *members) listPools(ctx context.Context) ([]container.Summary, error) {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	return p.api.ContainerList(ctx, container.ListOptions{
		All:     true,
		Filters: filters.NewArgs(filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("label", labelPool)),
	})
}

func lost(c container.Summary, now func() time.Time) bool {
	age := now().Sub(time.Unix(c.Created, 0))
	switch statusOf(c.State) {
	case statusGone:
		return true
	case statusCreated:
		return age > createTimeout+greeting
	default:
		return age > 2*pool.MemberAge
	}
}

// engineNow is the time by the engine's clock, by which it tells when containers were made.
func engineNow(ctx context.Context, api *client.Client) time.Time {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	info, err := api.Info(ctx)
	if err != nil {
		return time.Time{} // then nothing is old
	}
	now, _ := time.Parse(time.RFC3339Nano, info.SystemTime) // zero as well
	return now
}
