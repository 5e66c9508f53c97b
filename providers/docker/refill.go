package docker

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/confine"
)

// refill is the one maker of pool members: one at a time costs running sandboxes nothing that can be measured.
func (p *Provider) refill(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pool.wake:
		}
		for ctx.Err() == nil && p.refillOne(ctx) {
		}
	}
}

// refillOne makes a member where one is lacking. It never waits for a start: creates that take all of them wake it
// when they are done.
func (p *Provider) refillOne(ctx context.Context) bool {
	image, lacking := p.pool.lacking()
	if !lacking {
		return false
	}
	select {
	case p.starts <- struct{}{}:
	default:
		return false
	}
	defer func() { <-p.starts }()
	// A create that was begun is finished, or it could not be undone.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer stop()
	m, err := p.makeMember(ctx, image)
	if err != nil {
		p.pool.rest(image)
		p.cfg.Logger.WarnContext(ctx, "pool is not refilled", "image", image, "error", err)
		return true
	}
	if !p.pool.put(m) {
		p.retire(ctx, m)
	}
	return true
}

func (p *Provider) makeMember(ctx context.Context, image string) (*member, error) {
	spec := p.memberSpec(image)
	name := memberName(strings.ToLower(rand.Text()))
	ref, err := p.makeContainer(ctx, name, p.memberConfig(spec), spec)
	if err != nil {
		return nil, translate(err, "create a pool container")
	}
	m, err := p.startMember(ctx, &member{image: image, name: name, ref: ref, madeAt: time.Now()})
	if err != nil {
		discard(ctx, p.api, ref)
		return nil, err
	}
	return m, nil
}

func (p *Provider) startMember(ctx context.Context, m *member) (*member, error) {
	found, err := p.api.ContainerInspect(ctx, m.ref)
	if err != nil {
		return nil, translate(err, "inspect a pool container")
	}
	m.imageID = found.Image
	if m.raw, err = p.attach(ctx, m.ref); err != nil {
		return nil, err
	}
	if err := p.api.ContainerStart(ctx, m.ref, container.StartOptions{}); err != nil {
		_ = m.raw.Close()
		p.guest.forget() // as create does
		return nil, startError(err)
	}
	m.inside, err = p.guests.Converse(ctx, m.raw, greeting)
	return m, err
}

// retire removes a member that left the pool unused.
func (p *Provider) retire(ctx context.Context, m *member) {
	m.letGo()
	if err := p.remove(context.WithoutCancel(ctx), m.ref); err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool container is left for the sweep", "container", m.name, "error", err)
	}
}

// memberSpec is what a member is made from: a sandbox that leaves everything open.
func (p *Provider) memberSpec(image string) providers.Spec {
	return providers.Spec{Image: image, WorkDir: confine.WorkDir, Resources: p.cfg.Defaults}
}

// memberConfig leaves out the sandbox's id, which the name will carry: labels are for ever.
func (p *Provider) memberConfig(spec providers.Spec) *container.Config {
	c := p.containerConfig(spec)
	delete(c.Labels, labelSandbox)
	c.Labels[labelPool] = spec.Image
	c.Entrypoint = append(c.Entrypoint, "-unclaimed", p.pool.cfg.Patience.String())
	return c
}
