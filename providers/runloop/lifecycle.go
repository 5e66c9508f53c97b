package runloop

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// tags are the labels by which the fleet knows a sandbox as its own.
func (p *Provider) tags(id string) remote.Labels { return remote.Identity(p.cfg.Fleet, id) }

// Create implements providers.Provider. Runloop would make as many devboxes as it is asked for, so one is looked for
// before it is made and afterwards; of several the oldest stays.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	spec, err := p.complete(spec)
	if err != nil {
		return providers.Instance{}, err
	}
	unlock, err := p.creating.Lock(ctx, spec.ID)
	if err != nil {
		return providers.Instance{}, remote.Unavailable("the sandbox's create was not waited for", ctx.Err())
	}
	defer unlock()
	d, err := p.one(ctx, spec.ID)
	if errors.Is(err, providers.ErrNotFound) {
		d, err = p.make(ctx, spec)
	}
	if err == nil {
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	switch d.Phase() {
	case remote.PhaseFailed:
		p.dispose(ctx, spec.ID, d)
		return providers.Instance{}, failed(d)
	case remote.PhaseRuns:
		err := p.inside(spec.ID, d).MakeWorkDir(ctx, errNotRunloop)
		if remote.IsClass(err, providers.Invalid) {
			p.dispose(ctx, spec.ID, d)
		}
		if err != nil {
			return providers.Instance{}, err
		}
	}
	return d.instance(), nil
}

// one finds the sandbox's devbox, and removes all but the oldest of those that carry its id.
func (p *Provider) one(ctx context.Context, id string) (described, error) {
	found, err := p.apiList(ctx, p.tags(id))
	if err != nil {
		return described{}, err
	}
	if len(found) == 0 {
		return described{}, providers.ErrNotFound
	}
	for _, twin := range found[1:] {
		p.log.WarnContext(ctx, "a sandbox was made twice; the younger one is removed", "sandbox_id", id, "ref", twin.ID)
		if err := p.remove(ctx, twin.ID); err != nil {
			return described{}, err
		}
	}
	p.refs.Set(id, remote.Ref{ID: found[0].ID})
	return found[0], nil
}

// make creates the devbox.
func (p *Provider) make(ctx context.Context, spec providers.Spec) (described, error) {
	w, err := p.wish(ctx, spec)
	if err != nil {
		return described{}, err
	}
	made, err := p.apiCreate(ctx, w)
	if err != nil && w.Launch.Policy != "" {
		p.forgetPolicy(w.Launch.Policy)
	}
	unknown := remote.IsClass(err, providers.Unavailable) || remote.IsClass(err, providers.Internal)
	if err != nil && (!unknown || ctx.Err() != nil) {
		return described{}, err
	}
	found, lookErr := p.one(ctx, spec.ID) // also of what nobody knows what became of it
	switch {
	case lookErr == nil:
		return found, nil
	case err != nil:
		return described{}, err
	case !errors.Is(lookErr, providers.ErrNotFound):
		return described{}, lookErr
	}
	p.refs.Set(spec.ID, remote.Ref{ID: made.ID}) // the lists lag behind
	return made, nil
}

// wish says in the API's terms what a spec asks for.
func (p *Provider) wish(ctx context.Context, spec providers.Spec) (w wish, err error) {
	w = wish{Name: p.name(spec.ID), Env: maps.Clone(spec.Env), Metadata: remote.LabelsOf(p.cfg.Fleet, spec)}
	if w.Env == nil {
		w.Env = map[string]string{}
	}
	switch {
	case strings.HasPrefix(spec.Image, BlueprintPrefix):
		w.BlueprintID = spec.Image
	case strings.HasPrefix(spec.Image, SnapshotPrefix):
		w.Snapshot = spec.Image
	default:
		w.BlueprintName = spec.Image
	}
	w.Launch.KeepAlive = int64(p.cfg.Life.Seconds()) // it cannot be told a longer one later
	if err := w.Launch.size(spec.Resources); err != nil {
		return w, err
	}
	if !spec.Network {
		w.Launch.Policy, err = p.closed(ctx)
	}
	return w, err
}

// dispose removes a sandbox that nobody can use, as far as that can be done now.
func (p *Provider) dispose(ctx context.Context, id string, d described) {
	ctx, stop := remote.Background(ctx)
	defer stop()
	if err := p.remove(ctx, d.ID); err != nil {
		p.log.WarnContext(ctx, "a sandbox that cannot be used was not removed", "sandbox_id", id, "error", err)
	}
}

// look finds a sandbox's devbox and describes it.
func (p *Provider) look(ctx context.Context, id string) (d described, err error) {
	find := func() (string, error) {
		d, err := p.one(ctx, id)
		return d.ID, err
	}
	err = p.refs.Find(id, find, func(backend string) (err error) {
		d, err = p.apiGet(ctx, backend)
		if err == nil && !d.Metadata.Have(p.tags(id)) { // somebody else's, whatever was remembered
			err = providers.ErrNotFound
		}
		return err
	})
	return d, err
}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	d, err := p.look(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := p.life.Standing(d); err != nil {
		return nil, err
	}
	return p.inside(id, d), nil
}

// remove shuts a devbox down, also where a snapshot of it is being made. One that has ended is a success.
func (p *Provider) remove(ctx context.Context, backend string) error {
	_, err := p.vendor.Call(ctx, shutdown(backend))
	err = remote.Translated(vendorName, "delete the sandbox", err, changeClass)
	if remote.IsClass(err, providers.Busy) { // it may have come to its end before
		d, getErr := p.apiGet(ctx, backend)
		if errors.Is(getErr, providers.ErrNotFound) || getErr == nil && d.Phase() == remote.PhaseFailed {
			err = nil
		}
	}
	if errors.Is(err, providers.ErrNotFound) {
		err = nil
	}
	if err == nil {
		p.calls.Cut(backend, providers.ErrLost)
	}
	return err
}

func shutdown(backend string) remote.Request {
	return remote.Request{
		Method: http.MethodPost, Path: at(backend) + "/shutdown", Query: url.Values{"force": {"true"}}, Body: struct{}{},
		Want: []int{http.StatusOK},
	}
}

// Delete implements providers.Provider. A twin that a lost answer has left is removed when it is listed.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !confine.ValidID(id) {
		return nil
	}
	d, err := p.look(ctx, id)
	if err == nil {
		err = p.remove(ctx, d.ID)
	}
	if errors.Is(err, providers.ErrNotFound) {
		return nil
	}
	if err == nil {
		p.refs.Forget(id, d.ID)
	}
	return err
}

// List implements providers.Provider.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	found, err := p.apiList(ctx, remote.Labels{remote.LabelFleet: p.cfg.Fleet})
	if err != nil {
		return nil, err
	}
	all := make([]providers.Instance, 0, len(found))
	known := map[string]bool{}
	for _, d := range found {
		id := d.Metadata[remote.LabelSandbox]
		if !confine.ValidID(id) {
			continue
		}
		all = append(all, d.instance())
		if !known[id] { // the oldest counts
			known[id] = true
			p.refs.Set(id, remote.Ref{ID: d.ID})
		}
	}
	return all, nil
}

// Pause implements providers.Pauser by a suspend: files stay, processes end.
func (p *Provider) Pause(ctx context.Context, id string) error {
	d, err := p.look(ctx, id)
	if err == nil {
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil || d.Phase() == remote.PhaseStopped {
		return err
	}
	return p.life.Reached(ctx, d, remote.PhaseStopped, p.apiDo(ctx, "pause the sandbox", d.ID, "suspend"))
}

// Resume implements providers.Pauser.
func (p *Provider) Resume(ctx context.Context, id string) error {
	d, err := p.look(ctx, id)
	if err == nil {
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil || d.Phase() == remote.PhaseRuns {
		return err
	}
	return p.life.Reached(ctx, d, remote.PhaseRuns, p.apiDo(ctx, "resume the sandbox", d.ID, "resume"))
}

// Ping implements providers.Pinger.
func (p *Provider) Ping(ctx context.Context) error {
	_, _, err := p.apiPage(ctx, url.Values{"limit": {"1"}})
	return err
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, backend string) {
	if remote.ValidID(backend) {
		p.refs.Set(id, remote.Ref{ID: backend})
	}
}
