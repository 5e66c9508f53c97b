package docker

import (
	"context"

	"sandyard/providers"
)

var _ providers.Pooler = (*Provider)(nil)

// Stock implements providers.Pooler. Classes that this engine cannot serve, most often because it does not hold their
// image, are left out until it can.
func (p *Provider) Stock(ctx context.Context, classes []providers.PoolClass, room providers.PoolRoom) {
	if p.cfg.Pool.Size <= 0 {
		return
	}
	var wanted []providers.PoolClass
	for _, c := range classes {
		if full, ok := p.members.serves(ctx, c); ok {
			wanted = append(wanted, full)
		}
	}
	for _, m := range p.pool.Restock(wanted, room) {
		p.cfg.Logger.InfoContext(ctx, "pool container no longer needed", "container", m.Name, "image", m.Spec.Image)
		p.work.Go(func() { p.members.retire(ctx, m) })
	}
}

// serves completes a class as Create completes the specs that are to match it.
func (p *members) serves(ctx context.Context, c providers.PoolClass) (providers.PoolClass, bool) {
	c.Spec.ID, c.Spec.Env, c.Spec.Labels = "member", nil, nil
	full, err := p.complete(ctx, c.Spec)
	if err != nil && p.safe(full.Runtime) != nil {
		return c, false // the start has told why
	}
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "template has no pool on this engine", "image", c.Spec.Image, "error", err)
		return c, false
	}
	full.ID = ""
	c.Spec, c.Max = full, max(c.Min, c.Max)
	_, err = p.imageOf(ctx, full.Image)
	if err != nil && !isMissing(err) && ctx.Err() == nil {
		p.cfg.Logger.WarnContext(ctx, "image of a pool not checked", "image", full.Image, "error", err)
		return c, true // it stands where it stood; a refill finds out
	}
	return c, err == nil
}
