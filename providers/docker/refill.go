package docker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/docker/pool"
)

// refillRetry is how long to wait while another worker refills on the same engine.
const refillRetry = 250 * time.Millisecond

// members are the containers that wait for sandboxes: made, given away, looked after and removed. They have a type of
// their own because Provider has as many methods as a reader can keep in mind.
type members struct{ *Provider }

// refill is the one maker of pool members: one at a time on the whole engine costs running sandboxes nothing that can be
// measured.
func (p *members) refill(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pool.Woken():
		case <-retry.C:
		}
		again := true
		for again && ctx.Err() == nil {
			var taken bool
			if again, taken = p.refillOne(ctx); taken {
				retry.Reset(refillRetry)
			}
		}
	}
}

// refillOne makes a member where one is lacking. It never waits for a start: creates that take all of them wake it
// when they are done. Taken says that another worker is making one.
func (p *members) refillOne(ctx context.Context) (again, taken bool) {
	spec, lacking := p.pool.Lacking()
	if !lacking {
		return false, false
	}
	select {
	case p.starts <- struct{}{}:
	default:
		return false, false
	}
	defer func() { <-p.starts }()
	// A create that was begun is finished, or it could not be undone.
	ctx, stop := p.life.Own(ctx, createTimeout)
	defer stop()
	m, err := p.makeMember(ctx, spec)
	if errdefs.IsConflict(err) {
		p.freeRefill(ctx)
		return false, true
	}
	if err != nil {
		p.pool.Rest(classKey(spec))
		p.cfg.Logger.WarnContext(ctx, "pool not refilled", "image", spec.Image, "error", err)
		return true, false
	}
	if !p.pool.Put(m) {
		p.retire(ctx, m)
	}
	return true, false
}

// refillName is what a member is called while it is made. Names are unique on an engine, so no two workers of the fleet
// make one at once.
func (p *members) refillName() string {
	sum := sha256.Sum256([]byte(p.cfg.Fleet))
	return "sandyard-refill-" + hex.EncodeToString(sum[:6])
}

// sighting is a container that has had the refiller's name since this worker first saw it there.
type sighting struct {
	ref   string
	since time.Time
}

// freeRefill removes what a worker has left that died while it made a member. Between making and starting a container a
// refiller does next to nothing, so one that is not started in half of its patience has nobody to start it; a started
// one ends itself. The time counts by this worker's clock.
func (p *members) freeRefill(ctx context.Context) {
	found, err := p.api.ContainerInspect(ctx, p.refillName())
	if err != nil || found.Config.Labels[labelFleet] != p.cfg.Fleet {
		return
	}
	if p.refilling.ref != found.ID {
		p.refilling = sighting{found.ID, time.Now()}
	}
	seen := time.Since(p.refilling.since)
	switch s := statusOf(found.State.Status); {
	case s == statusGone, s == statusCreated && seen > p.pool.Config().Patience/2:
		p.discardIdle(ctx, found.ID)
	case seen > createTimeout+greeting: // its guest hangs, and nobody may still want it
		if err := p.remove(ctx, found.ID); err != nil {
			p.cfg.Logger.WarnContext(ctx, "incomplete pool container not removed", "container", found.ID, "error", err)
		}
	}
}

// makeMember makes one under the refiller's name, which it gives back at the end. A conflict comes back as it is.
func (p *members) makeMember(ctx context.Context, spec providers.Spec) (*pool.Member, error) {
	ref, err := p.makeContainer(ctx, p.refillName(), p.memberConfig(spec), spec, nil)
	if errdefs.IsConflict(err) {
		return nil, err
	}
	if err != nil {
		return nil, engineerr.Translate(err, "create a pool container")
	}
	m, err := p.startMember(ctx, &pool.Member{
		Key: classKey(spec), Spec: spec, Name: memberName(strings.ToLower(rand.Text())), Ref: ref, MadeAt: time.Now(),
	})
	if err != nil {
		discard(ctx, p.life, p.api, ref)
		return nil, err
	}
	if err := p.api.ContainerRename(ctx, ref, m.Name); err != nil {
		m.LetGo()
		discard(ctx, p.life, p.api, ref)
		return nil, engineerr.Translate(err, "name a pool container")
	}
	return m, nil
}

func (p *members) startMember(ctx context.Context, m *pool.Member) (*pool.Member, error) {
	found, err := p.api.ContainerInspect(ctx, m.Ref)
	if err != nil {
		return nil, engineerr.Translate(err, "inspect a pool container")
	}
	m.ImageID = found.Image
	if m.Raw, err = p.launch(ctx, m.Ref); err != nil {
		p.guest.forget() // as create does
		return nil, err
	}
	m.Inside, err = p.guests.Converse(ctx, m.Raw, greeting)
	return m, err
}

// retire removes a member that left the pool unused.
func (p *members) retire(ctx context.Context, m *pool.Member) {
	m.LetGo()
	own, stop := p.life.Own(ctx, removeTimeout+gvisorPatience)
	defer stop()
	if err := p.remove(own, m.Ref); err != nil {
		p.cfg.Logger.WarnContext(ctx, "pool container not removed, the sweep removes it", "container", m.Name, "error", err)
	}
}

// memberSpec is what a member is made from: a sandbox that leaves everything open.
func (p *members) memberSpec(image string) providers.Spec {
	return providers.Spec{Image: image, WorkDir: confine.WorkDir, Runtime: p.cfg.Runtime, Resources: p.cfg.Defaults}
}

// memberConfig leaves out the sandbox's id, which the name will carry: labels are for ever.
func (p *members) memberConfig(spec providers.Spec) *container.Config {
	c := p.containerConfig(spec)
	delete(c.Labels, labelSandbox)
	c.Labels[labelPool] = spec.Image
	c.Entrypoint = append(c.Entrypoint, "-unclaimed", p.pool.Config().Patience.String())
	return c
}
