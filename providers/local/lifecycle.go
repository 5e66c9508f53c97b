package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
)

const (
	endPoll = 200 * time.Microsecond
	// shimPatience is how long a shim may take to notice that its guest is dead.
	shimPatience = 500 * time.Millisecond
)

// Pause implements providers.Pauser.
func (p *Provider) Pause(ctx context.Context, id string) error {
	return p.change(ctx, id, func(b box) error {
		if b.status != statusPaused {
			if err := b.Usable(); err != nil {
				return err
			}
			if err := p.freeze(ctx, b); err != nil {
				return err
			}
		}
		p.guests.Drop(id)
		return nil
	})
}

// freeze does not leave a sandbox half frozen behind.
func (p *Provider) freeze(ctx context.Context, b box) error {
	err := b.group.Freeze(ctx)
	if err == nil {
		return nil
	}
	undo, stop := p.life.Own(ctx, removeTimeout)
	defer stop()
	return providers.Unavailable.Errorf("pause the sandbox: %w", errors.Join(err, b.group.Thaw(undo)))
}

// Resume implements providers.Pauser.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.change(ctx, id, func(b box) error {
		if b.status == statusPaused {
			if err := b.group.Thaw(ctx); err != nil {
				return providers.Unavailable.Errorf("resume the sandbox: %w", err)
			}
		} else if err := b.Usable(); err != nil {
			return err
		}
		return nil
	})
}

// change does something with a sandbox while nobody else does.
func (p *Provider) change(ctx context.Context, id string, do func(box) error) error {
	if !confine.ValidID(id) {
		return providers.ErrNotFound
	}
	unlock, err := p.lock(ctx, id, false)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := p.inspect(id)
	if err != nil {
		return err
	}
	return do(b)
}

// Delete implements providers.Provider.
func (p *Provider) Delete(ctx context.Context, id string) error {
	err := p.change(ctx, id, func(b box) error { return p.remove(ctx, b) })
	if err != nil && !errors.Is(err, providers.ErrNotFound) {
		return err
	}
	p.guests.Drop(id)
	p.cfg.Logger.InfoContext(ctx, "sandbox removed", "sandbox_id", id)
	return nil
}

// remove leaves nothing of the sandbox, whatever state it is in.
func (p *Provider) remove(ctx context.Context, b box) error {
	if err := p.end(ctx, b); err != nil {
		return err
	}
	if err := p.removeDir(b); err != nil {
		return providers.Internal.Errorf("remove the sandbox's directory: %w", err)
	}
	return nil
}

// end kills the sandbox's processes and removes its control group. Its mounts end with its processes.
func (p *Provider) end(ctx context.Context, b box) error {
	ctx, stop := context.WithTimeout(ctx, removeTimeout)
	defer stop()
	p.guests.Drop(b.id)
	// The shim ends with its guest; one that has none yet would start it behind our back, so the group is looked at
	// again when the shim is gone.
	for _, step := range []func(context.Context) error{
		func(context.Context) error { _, err := b.group.Strike(); return err },
		func(ctx context.Context) error { return endShim(ctx, b) }, b.group.Kill, b.group.Remove,
	} {
		if err := step(ctx); err != nil {
			return providers.Unavailable.Errorf("end the sandbox: %w", err)
		}
	}
	p.children.reap()
	return nil
}

// endShim waits for the end of the shim, and brings it about where it does not come by itself.
func endShim(ctx context.Context, b box) error {
	patience := shimPatience
	if b.status == statusHalfMade {
		patience = 0
	}
	k, err := openShim(ctx, b)
	if k == nil || err != nil {
		return err
	}
	defer k.Close()
	patient, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if k.ended(patient) {
		return nil
	}
	k.kill()
	if !k.ended(ctx) {
		return fmt.Errorf("wait for the shim: %w", ctx.Err())
	}
	return nil
}
