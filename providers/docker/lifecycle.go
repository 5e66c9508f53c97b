package docker

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

const (
	removePoll = 20 * time.Millisecond
	// gvisorPatience is how much longer than any other a container under gVisor may take to be removed. Together that is
	// less than a job that deletes has.
	gvisorPatience = 25 * time.Second
)

// Pause implements providers.Pauser.
func (p *Provider) Pause(ctx context.Context, id string) error {
	return p.change(ctx, id, func(found resource) error {
		p.resumed.forget(id)
		if found.status != statusPaused {
			if err := found.Usable(); err != nil {
				return err
			}
			if err := p.settle(ctx, id, statusPaused, p.api.ContainerPause(ctx, found.ref)); err != nil {
				return err
			}
		}
		p.guests.Drop(id)
		return nil
	})
}

// Resume implements providers.Pauser.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.change(ctx, id, func(found resource) error {
		if found.status != statusPaused {
			return found.Usable()
		}
		err := p.settle(ctx, id, statusRunning, p.api.ContainerUnpause(ctx, found.ref))
		if err == nil {
			p.resumed.begin(id)
		}
		return err
	})
}

func (p *Provider) change(ctx context.Context, id string, do func(resource) error) error {
	unlock, err := p.alone(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := p.inspect(ctx, id)
	if err != nil {
		return err
	}
	return do(found)
}

// settle forgives an error when the container is in the wanted state all the same: another worker was faster, or the
// engine answers a repeated call with an error of its own (20.10 says 500 to a second unpause).
func (p *Provider) settle(ctx context.Context, id string, want status, err error) error {
	if err == nil {
		return nil
	}
	now, inspectErr := p.inspect(ctx, id)
	switch {
	case inspectErr != nil:
		return inspectErr
	case now.status == want:
		return nil
	case now.status == statusGone:
		return now.Usable()
	default:
		return engineerr.Translate(err, "change the sandbox to "+string(want))
	}
}

// Delete implements providers.Provider.
func (p *Provider) Delete(ctx context.Context, id string) error {
	unlock, err := p.alone(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	ref, err := p.clear(ctx, id)
	if err != nil {
		return err
	}
	p.silent.Delete(ref)
	p.resumed.forget(id)
	p.guests.Drop(id)
	p.cfg.Logger.InfoContext(ctx, "sandbox removed", "sandbox_id", id)
	return nil
}

// clear removes the container that has a sandbox's name, if there is one.
func (p *Provider) clear(ctx context.Context, id string) (ref string, err error) {
	found, _, err := p.find(ctx, id)
	if err == nil {
		err = p.remove(ctx, found.ref)
	}
	if err != nil && providers.AsError(err).Class != providers.NotFound {
		return "", err
	}
	return found.ref, nil
}

// remove kills and removes a container and returns once it is gone, also when somebody else is removing it.
func (p *Provider) remove(ctx context.Context, ref string) error {
	err := p.removeNow(ctx, ref)
	if err == nil || !p.endsSlowly(ctx, ref) {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, gvisorPatience)
	defer stop()
	for err != nil && providers.AsError(err).Retryable() {
		select {
		case <-time.After(removePoll):
			err = p.removeNow(ctx, ref)
		case <-ctx.Done():
			return providers.Busy.Errorf("the docker engine is still ending the sandbox's processes; try again: %w", err)
		}
	}
	return err
}

func (p *Provider) removeNow(ctx context.Context, ref string) error {
	return p.removeWith(ctx, ref, container.RemoveOptions{Force: true, RemoveVolumes: true}, func() bool { return false })
}

// endsSlowly says whether a container that is still there has gVisor's kernel. That ends its processes one after the other
// and within the sandbox's share of the processors, so that many take it a while, whatever the engine answers meanwhile.
func (p *Provider) endsSlowly(ctx context.Context, ref string) bool {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	found, err := p.api.ContainerInspect(ctx, ref)
	if err != nil {
		return errdefs.IsNotFound(err) // the next look says that it is gone
	}
	return p.checkRuntime(ctx, found.HostConfig.Runtime) == nil && p.isGVisor(found.HostConfig.Runtime)
}

// removeIdle removes a container that does not run. One that runs by now stays, which is no error: the engine decides.
func (p *Provider) removeIdle(ctx context.Context, ref string) error {
	return p.removeWith(ctx, ref, container.RemoveOptions{RemoveVolumes: true}, func() bool {
		now, err := p.api.ContainerInspect(ctx, ref)
		return err == nil && now.State.Running // also while it is paused
	})
}

// discardIdle is removeIdle for what nobody waits for.
func (p *Provider) discardIdle(ctx context.Context, ref string) {
	own, stop := p.life.Own(ctx, removeTimeout)
	defer stop()
	if err := p.removeIdle(own, ref); err != nil {
		p.cfg.Logger.WarnContext(ctx, "container not removed", "container", ref, "error", err)
	}
}

// removeWith repeats what meets a conflict, until keep wants the container to stay.
func (p *Provider) removeWith(ctx context.Context, ref string, how container.RemoveOptions, keep func() bool) error {
	ctx, stop := context.WithTimeout(ctx, removeTimeout)
	defer stop()
	for {
		err := p.api.ContainerRemove(ctx, ref, how)
		switch {
		case err == nil, errdefs.IsNotFound(err), errdefs.IsConflict(err) && keep():
			return nil
		case !errdefs.IsConflict(err):
			return engineerr.Translate(err, "remove the container")
		}
		select {
		case <-time.After(removePoll):
		case <-ctx.Done():
			return engineerr.Translate(err, "remove the container")
		}
	}
}
