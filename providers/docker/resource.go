package docker

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
)

// status is the engine's word for a container's state, with all its ends as one.
type status string

const (
	statusCreated status = "created"
	statusRunning status = "running"
	statusPaused  status = "paused"
	statusGone    status = "exited"
	// statusRemoving is not for long.
	statusRemoving status = "removing"
)

// errForeign is a container that has a sandbox's name and is not of this fleet.
var errForeign = errors.New("it belongs to another installation")

// resource is what the engine says of one container of ours.
type resource struct {
	id        string // the sandbox's
	ref       string
	status    status
	ended     string // why it is gone, as far as that is known
	pooled    bool   // made before it was the sandbox's
	createdAt time.Time
}

func (r resource) instance() providers.Instance {
	return providers.Instance{ID: r.id, Ref: r.ref, State: stateOf(r.status), CreatedAt: r.createdAt, Ended: r.ended}
}

func stateOf(s status) providers.State {
	switch s {
	case statusRunning:
		return providers.StateRunning
	case statusPaused:
		return providers.StatePaused
	default:
		return providers.StateStopped
	}
}

func statusOf(engine string) status {
	switch engine {
	case "dead":
		return statusGone
	default:
		return status(engine)
	}
}

// inspectOnce is find, and says of a container that has ended why.
func (p *Provider) inspectOnce(ctx context.Context, id string) (resource, error) {
	r, end, err := p.find(ctx, id)
	if err == nil && r.status == statusGone {
		r.ended = p.explain(ctx, []ending{end})[r.ref]
	}
	return r, err
}

// find asks for the container of sandbox id. A container of that name that is not of this fleet is not ours to touch.
func (p *Provider) find(ctx context.Context, id string) (resource, ending, error) {
	if !confine.ValidID(id) {
		return resource{}, ending{}, providers.ErrNotFound
	}
	found, err := p.api.ContainerInspect(ctx, containerName(id))
	if err != nil {
		if e := engineerr.Translate(err, "inspect the container"); engineerr.ClassOf(err) != providers.NotFound {
			return resource{}, ending{}, e
		}
		return resource{}, ending{}, providers.NotFound.Errorf("the sandbox does not exist: %w", err)
	}
	_, pooled := found.Config.Labels[labelPool]
	if found.Config.Labels[labelFleet] != p.cfg.Fleet || !pooled && found.Config.Labels[labelSandbox] != id {
		return resource{}, ending{}, providers.NotFound.Errorf("container %s: %w", containerName(id), errForeign)
	}
	// A time the engine writes in another form only loses the date, not the sandbox.
	made, _ := time.Parse(time.RFC3339Nano, found.Created)
	return resource{
		id:        id,
		ref:       found.ID,
		status:    statusOf(found.State.Status),
		pooled:    pooled,
		createdAt: made,
	}, endingOf(found), nil
}

// SandboxID implements guestconn.Body.
func (r resource) SandboxID() string { return r.id }

// Usable implements guestconn.Body: nil for a running sandbox, and of any other what is wrong.
func (r resource) Usable() error {
	switch r.status {
	case statusRunning:
		return nil
	case statusPaused:
		return providers.ErrPaused
	case statusGone:
		return providers.Died(r.ended)
	default:
		return providers.Busy.Errorf("the sandbox is %s; try again", r.status)
	}
}

// List implements providers.Provider. What waits in a pool is no sandbox yet; the pools see to it themselves.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	found, err := p.api.ContainerList(ctx, container.ListOptions{
		All:     true,
		Filters: filters.NewArgs(filters.Arg("label", labelFleet+"="+p.cfg.Fleet)),
	})
	if err != nil {
		return nil, engineerr.Translate(err, "list the containers")
	}
	instances := make([]providers.Instance, 0, len(found))
	var gone []string
	for _, c := range found {
		id, named := sandboxOf(c.Names)
		if _, pooled := c.Labels[labelPool]; !named || !pooled && id != c.Labels[labelSandbox] {
			continue // a member that waits, or what somebody has started from an image that we built
		}
		instances = append(instances, providers.Instance{
			ID:        id,
			Ref:       c.ID,
			State:     stateOf(statusOf(c.State)),
			CreatedAt: time.Unix(c.Created, 0),
		})
		if s := statusOf(c.State); s == statusGone || s == statusRemoving {
			gone = append(gone, c.ID)
		}
	}
	reasons := p.explain(ctx, p.endings(ctx, gone))
	for i := range instances {
		instances[i].Ended = reasons[instances[i].Ref]
	}
	return instances, nil
}

// endings asks how containers have ended.
func (p *Provider) endings(ctx context.Context, refs []string) []ending {
	var all []ending
	for _, ref := range refs {
		found, err := p.api.ContainerInspect(ctx, ref)
		switch {
		case err == nil:
			all = append(all, endingOf(found))
		case errdefs.IsNotFound(err): // by now
			all = append(all, ending{ref: ref, removed: true})
		}
	}
	return all
}
