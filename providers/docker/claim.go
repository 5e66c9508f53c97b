package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/docker/pool"
)

// errStale is a member made from what its image's name no longer means, or one that has waited too long.
var errStale = errors.New("the pool container is stale")

// fromPool makes a member of the pool the sandbox of spec. It answers false where there is none to be had, or when
// the sandbox has a container already; create then sees to it.
func (p *members) fromPool(ctx context.Context, spec providers.Spec) (providers.Instance, bool) {
	if len(spec.Labels) > 0 {
		return providers.Instance{}, false
	}
	key := classKey(spec)
	p.pool.Ask(key)
	for m := p.pool.Take(key); m != nil; m = p.pool.Take(key) {
		err := p.adopt(ctx, m, spec)
		switch {
		case err == nil:
			return p.claim(ctx, m, spec)
		case errdefs.IsConflict(err) && p.keeps(m, spec):
			return providers.Instance{}, false
		case errors.Is(err, errUnnamed):
			p.cfg.Logger.WarnContext(ctx, "pool container may have become the sandbox", "sandbox_id", spec.ID, "container", m.Name, "error", err)
			m.LetGo()
			return providers.Instance{}, false
		}
		p.cfg.Logger.WarnContext(ctx, "pool container not used", "container", m.Name, "error", err)
		p.retire(ctx, m)
		if ctx.Err() != nil || errdefs.IsConflict(err) {
			break
		}
	}
	return providers.Instance{}, false
}

// adopt checks the member, fits its limits and gives it the sandbox's name, in this order: with the name it is the
// sandbox, whatever becomes of this worker, and without it the member ends by itself when its worker does.
func (p *members) adopt(ctx context.Context, m *pool.Member, spec providers.Spec) error {
	if err := p.fresh(ctx, m); err != nil {
		return err
	}
	if changes, any := limitChanges(m.Spec.Resources, spec.Resources); any {
		if _, err := p.api.ContainerUpdate(ctx, m.Ref, container.UpdateConfig{Resources: changes}); err != nil {
			return engineerr.Translate(err, "set the limits")
		}
	}
	return p.rename(ctx, m, spec.ID)
}

// errUnnamed is a renaming of which the engine did not say whether it was made. The member is left alone: it may be the
// sandbox of another worker by now, and if it is nobody's it ends by itself.
var errUnnamed = errors.New("the engine did not answer")

// rename gives the member the sandbox's name. A conflict comes back as it is.
func (p *members) rename(ctx context.Context, m *pool.Member, id string) error {
	err := p.api.ContainerRename(ctx, m.Ref, containerName(id))
	if err == nil || errdefs.IsConflict(err) {
		return err
	}
	found, lost := p.inspect(ctx, id)
	if lost == nil && found.ref == m.Ref {
		return nil
	}
	return fmt.Errorf("%w: %w", errUnnamed, err)
}

// fresh speaks to the member, which keeps it alive, and checks meanwhile that it still is what it was made as.
func (p *members) fresh(ctx context.Context, m *pool.Member) error {
	answered := make(chan error, 1)
	go func() { answered <- answers(ctx, m) }()
	held, err := p.imageOf(ctx, m.Spec.Image)
	if silent := <-answered; silent != nil {
		return silent
	}
	if err != nil {
		return engineerr.Translate(err, "look for the image")
	}
	if held.ID != m.ImageID || time.Since(m.MadeAt) > pool.MemberAge {
		return errStale
	}
	return nil
}

func answers(ctx context.Context, m *pool.Member) error {
	ctx, stop := context.WithTimeout(ctx, silence)
	defer stop()
	return m.Inside.Ping(ctx)
}

// keeps returns a member whose sandbox turned out to have a container to the pool, if nothing was changed about it.
func (p *members) keeps(m *pool.Member, spec providers.Spec) bool {
	_, changed := limitChanges(m.Spec.Resources, spec.Resources)
	return !changed && p.pool.Put(m)
}

// claim completes a sandbox that has just got its name. When it fails, create goes on from there as after a crash.
func (p *members) claim(ctx context.Context, m *pool.Member, spec providers.Spec) (providers.Instance, bool) {
	if err := m.Inside.Claim(ctx, spec.Env); err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool container did not accept its sandbox", "sandbox_id", spec.ID, "error", err)
		m.LetGo()
		return providers.Instance{}, false
	}
	if err := p.guests.Hold(ctx, spec.ID, m.Inside, m.Raw); err != nil {
		return providers.Instance{}, false
	}
	p.cfg.Logger.InfoContext(ctx, "sandbox started", "sandbox_id", spec.ID, "image", spec.Image, "pool", true)
	return providers.Instance{ID: spec.ID, Ref: m.Ref, State: providers.StateRunning, CreatedAt: m.MadeAt}, true
}

// limitChanges is what to update where want differs from have. Memory and swap only change together.
func limitChanges(have, want providers.Resources) (changes container.Resources, any bool) {
	all := limits(want)
	if want.MemoryMB != have.MemoryMB {
		changes.Memory, changes.MemorySwap, any = all.Memory, all.MemorySwap, true
	}
	if want.CPUs != have.CPUs {
		changes.NanoCPUs, any = all.NanoCPUs, true
	}
	if want.Pids != have.Pids {
		changes.PidsLimit, any = all.PidsLimit, true
	}
	return changes, any
}
