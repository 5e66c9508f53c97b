package docker

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/guestconn"
)

const (
	// createTimeout bounds a create that nobody waits for any more.
	createTimeout = 2 * time.Minute
	removeTimeout = 30 * time.Second
	// greeting is how long a new container's guest may take to answer, on a host busy with other starts.
	greeting = 15 * time.Second
)

// Create implements providers.Provider. A cancelled ctx ends the wait but not a create the engine has begun: that one
// finishes under its deterministic name, where the next Create or Delete finds it.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	spec, err := p.complete(ctx, spec)
	if err != nil {
		return providers.Instance{}, err
	}
	unlock, err := p.alone(ctx, spec.ID)
	if err != nil {
		return providers.Instance{}, err
	}
	late := func(err error) error { return engineerr.Translate(err, "wait for the new sandbox") }
	work := func(own context.Context) (providers.Instance, error) {
		defer unlock()
		defer p.pool.Begin()()
		if made, ok := p.members.fromPool(own, spec); ok {
			return made, nil
		}
		select {
		case p.starts <- struct{}{}:
		case <-ctx.Done(): // nothing has begun
			return providers.Instance{}, engineerr.Translate(ctx.Err(), "wait for a free start")
		}
		defer func() { <-p.starts }()
		return p.create(own, spec)
	}
	return guestconn.Detached(ctx, p.life, &p.work, createTimeout, late, work)
}

// create makes the container, or takes the one that already has its name.
func (p *Provider) create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	found, err := p.named(ctx, spec)
	if err != nil {
		return providers.Instance{}, err
	}
	switch found.status {
	case statusCreated:
		made, err := p.start(ctx, spec, found)
		if errors.Is(err, errCannotRun) {
			p.guest.forget() // as when it cannot be made
			return p.recreate(ctx, spec, found)
		}
		return made, err
	case statusGone:
		return p.recreate(ctx, spec, found)
	default:
		return p.takeUp(ctx, spec, found)
	}
}

// takeUp adopts a container that another attempt has started.
func (p *Provider) takeUp(ctx context.Context, spec providers.Spec, found resource) (providers.Instance, error) {
	switch found.status {
	case statusRunning:
		return p.join(ctx, spec, found)
	case statusPaused:
		return found.instance(), nil
	default:
		return providers.Instance{}, providers.Busy.Errorf("the sandbox is %s; try again", found.status)
	}
}

// named returns the container that has the sandbox's name, made just now where none had it. A name may be taken and
// nobody there to be found: its container is being removed, or the engine takes a renaming back. It is free soon.
func (p *Provider) named(ctx context.Context, spec providers.Spec) (resource, error) {
	patience := time.NewTimer(removeTimeout)
	defer patience.Stop()
	for {
		ref, taken := p.makeContainer(ctx, containerName(spec.ID), p.containerConfig(spec), spec, nil)
		if taken == nil { // there is nothing to ask the engine about what it has just made
			return resource{id: spec.ID, ref: ref, status: statusCreated, createdAt: time.Now().UTC()}, nil
		}
		if !errdefs.IsConflict(taken) {
			return resource{}, engineerr.Translate(taken, "create the container")
		}
		found, err := p.inspect(ctx, spec.ID)
		if !errors.Is(err, providers.ErrNotFound) || errors.Is(err, errForeign) {
			return found, err
		}
		select {
		case <-time.After(removePoll):
		case <-patience.C:
			return resource{}, providers.Busy.Errorf("the sandbox's container name is reserved without a container; try again: %w", taken)
		case <-ctx.Done():
			return resource{}, engineerr.Translate(ctx.Err(), "wait for the sandbox's name")
		}
	}
}

// join adopts a running container. One that comes from a pool may have got its name and no more, so it is claimed, which
// changes nothing about one that was.
func (p *Provider) join(ctx context.Context, spec providers.Spec, found resource) (providers.Instance, error) {
	l, err := p.guests.Link(ctx, found)
	if err == nil && found.pooled {
		err = l.Inside.Claim(ctx, spec.Env)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	return found.instance(), nil
}

// recreate replaces what an earlier attempt left dead. Another worker may be faster at each step.
func (p *Provider) recreate(ctx context.Context, spec providers.Spec, dead resource) (providers.Instance, error) {
	if err := p.removeIdle(ctx, dead.ref); err != nil {
		return providers.Instance{}, err
	}
	found, err := p.named(ctx, spec)
	if err != nil {
		return providers.Instance{}, err
	}
	if found.status == statusCreated {
		return p.start(ctx, spec, found)
	}
	return p.takeUp(ctx, spec, found)
}

// makeContainer makes a container as spec wants it and returns the engine's id of it. What the engine is asked for
// beside the program is as change leaves it, where that is not nil.
func (p *Provider) makeContainer(ctx context.Context, name string, config *container.Config, spec providers.Spec,
	change func(*container.HostConfig),
) (string, error) {
	ref, err := p.tryMake(ctx, name, config, spec, change)
	if errdefs.IsInvalidArgument(err) {
		// Somebody may have pruned the guest's volume since this process filled it.
		p.guest.forget()
		ref, err = p.tryMake(ctx, name, config, spec, change)
	}
	return ref, err
}

func (p *Provider) tryMake(ctx context.Context, name string, config *container.Config, spec providers.Spec,
	change func(*container.HostConfig),
) (string, error) {
	held, err := p.inspectImage(ctx, spec.Image)
	if err != nil {
		return "", err
	}
	if err := p.guest.ensure(ctx, p.api, spec.Image); err != nil {
		return "", err
	}
	filter, err := seccompProfile()
	if err != nil {
		return "", err
	}
	host := p.hostConfig(spec, filter)
	if held.Config != nil {
		if err := checkVolumes(held.Config.Volumes); err != nil {
			return "", err
		}
		coverVolumes(host, held.Config.Volumes, spec)
	}
	if change != nil {
		change(host)
	}
	made, err := p.api.ContainerCreate(ctx, config, host, nil, nil, name)
	return made.ID, err
}

// checkVolumes refuses an image that would have something mounted over what is the kernel's or the guest's.
func checkVolumes(declared map[string]struct{}) error {
	for dir := range declared {
		if providers.Reserved(dir) {
			return providers.Invalid.Errorf("the image declares a volume below /proc, /sys, /dev or %s; build it without this volume", providers.GuestDir)
		}
	}
	return nil
}

// coverVolumes puts small memory file systems where an image declares volumes; the engine would otherwise make
// volumes without a limit on the host's disk. Together they get half of what there is for temporary files.
func coverVolumes(host *container.HostConfig, declared map[string]struct{}, spec providers.Spec) {
	var dirs []string
	for dir := range declared {
		if dir != spec.WorkDir && dir != confine.TempDir {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return
	}
	half := confine.TempMB(spec.Resources) << 20 / 2
	host.Tmpfs[confine.TempDir] = tempOptions(half)
	for _, dir := range dirs {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeTmpfs, Target: dir,
			TmpfsOptions: &mount.TmpfsOptions{SizeBytes: half / int64(len(dirs)), Mode: 0o1777},
		})
	}
}

// start attaches first, so that not a byte of the guest is missed, and begins the conversation. Another worker may start
// the same container at the same time: what runs is never removed here, whoever has started it, and a guest that did not
// greet is asked again as one that somebody else has started.
func (p *Provider) start(ctx context.Context, spec providers.Spec, made resource) (providers.Instance, error) {
	raw, err := p.launch(ctx, made.ref)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "sandbox did not start", "sandbox_id", spec.ID, "error", err)
		p.discardIdle(ctx, made.ref)
		return providers.Instance{}, err
	}
	made.status = statusRunning
	if err := p.guests.Greet(ctx, made.id, raw, greeting); err != nil {
		p.cfg.Logger.WarnContext(ctx, "sandbox guest did not complete the handshake", "sandbox_id", spec.ID, "error", err)
		joined, err := p.join(ctx, spec, made)
		if err != nil {
			p.discardIdle(ctx, made.ref)
		}
		return joined, err
	}
	p.cfg.Logger.InfoContext(ctx, "sandbox started", "sandbox_id", spec.ID, "image", spec.Image)
	return made.instance(), nil
}

// launch returns the attachment to a container that it has started.
func (p *Provider) launch(ctx context.Context, ref string) (guestconn.Stream, error) {
	raw, err := p.attach(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := p.api.ContainerStart(ctx, ref, container.StartOptions{}); err != nil {
		_ = raw.Close()
		return nil, startError(err)
	}
	return raw, nil
}

// errCannotRun is a container whose first process the engine cannot start: the guest is not there, or not for this
// machine.
var errCannotRun = errors.New("the guest cannot run")

func startError(err error) error {
	if errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) {
		return providers.Internal.Errorf("could not start the container: %w", errors.Join(errCannotRun, err))
	}
	return engineerr.Translate(err, "start the container")
}
