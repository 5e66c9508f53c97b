package daytona

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// tags are the labels by which the fleet knows a sandbox as its own.
func (p *Provider) tags(id string) remote.Labels { return remote.Identity(p.cfg.Fleet, id) }

// name is the sandbox's at the backend, where no two have the same.
func (p *Provider) name(id string) string {
	fleet := sha256.Sum256([]byte(p.cfg.Fleet))
	return "sandyard-" + hex.EncodeToString(fleet[:4]) + "-" + id
}

// Create implements providers.Provider. The backend gives a name once, so that two creates never make two sandboxes:
// who comes second takes what the first has made.
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
	d, err := p.make(ctx, spec)
	if err == nil {
		p.refs.Set(spec.ID, remote.Ref{ID: d.ID})
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	switch d.Phase() {
	case remote.PhaseFailed:
		p.dispose(ctx, spec.ID, d)
		return providers.Instance{}, failed(d, p.cfg.Secret)
	case remote.PhaseRuns:
		if err := p.prepare(ctx, d, spec); err != nil {
			return providers.Instance{}, err
		}
	}
	return d.instance(), nil
}

// make creates the sandbox, or finds the one that has its name.
func (p *Provider) make(ctx context.Context, spec providers.Spec) (described, error) {
	made, err := p.apiCreate(ctx, p.wish(spec))
	if err == nil {
		return made, nil
	}
	taken := remote.IsClass(err, providers.Busy)
	unknown := remote.IsClass(err, providers.Unavailable) || remote.IsClass(err, providers.Internal)
	if ctx.Err() != nil || !taken && !unknown {
		return described{}, err
	}
	found, lookErr := p.one(ctx, spec.ID)
	if lookErr == nil {
		return found, nil
	}
	return described{}, err
}

// wish says in the API's terms what a spec asks for.
func (p *Provider) wish(spec providers.Spec) wish {
	w := wish{
		Name: p.name(spec.ID), Env: maps.Clone(spec.Env), Labels: remote.LabelsOf(p.cfg.Fleet, spec), Target: p.cfg.Target,
		BlockAll: !spec.Network, AutoDelete: -1, TTL: max(minutes(spec.Timeout), 1), image: spec.Image,
	}
	if w.Env == nil {
		w.Env = map[string]string{}
	}
	if strings.HasPrefix(spec.Image, ImagePrefix) {
		w.Build = dockerfile(spec.Image)
	} else {
		w.Snapshot = spec.Image
	}
	w.resources(spec.Resources)
	return w
}

// one finds the sandbox by its name.
func (p *Provider) one(ctx context.Context, id string) (described, error) {
	d, err := p.apiGet(ctx, p.name(id))
	if err == nil && !d.Labels.Have(p.tags(id)) { // somebody has given ours to another, or taken its labels
		err = providers.ErrNotFound
	}
	return d, err
}

// dispose removes a sandbox that nobody can use, as far as that can be done now.
func (p *Provider) dispose(ctx context.Context, id string, d described) {
	ctx, stop := remote.Background(ctx)
	defer stop()
	if err := p.remove(ctx, d.ID); err != nil {
		p.log.WarnContext(ctx, "a sandbox that cannot be used was not removed", "sandbox_id", id, "error", err)
	}
}

// prepare sees to the work directory.
func (p *Provider) prepare(ctx context.Context, d described, spec providers.Spec) error {
	box, err := p.inside(spec.ID, d)
	if err == nil {
		err = box.MakeWorkDir(ctx, errNotDaytona)
	}
	if remote.IsClass(err, providers.Invalid) {
		p.dispose(ctx, spec.ID, d)
	}
	return err
}

// found calls do with the backend's id of a sandbox.
func (p *Provider) found(ctx context.Context, id string, do func(backend string) error) error {
	return p.refs.Find(id, func() (string, error) {
		d, err := p.one(ctx, id)
		return d.ID, err
	}, do)
}

// look is found with the sandbox's description, which is checked to be ours.
func (p *Provider) look(ctx context.Context, id string) (d described, err error) {
	err = p.found(ctx, id, func(backend string) (err error) {
		d, err = p.apiGet(ctx, backend)
		if err == nil && !d.Labels.Have(p.tags(id)) { // somebody else's, whatever was remembered
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
	return p.inside(id, d)
}

// remove deletes one of the backend's sandboxes.
func (p *Provider) remove(ctx context.Context, backend string) error {
	err := p.apiDo(ctx, "delete the sandbox", http.MethodDelete, at(backend))
	if errors.Is(err, providers.ErrNotFound) {
		err = nil
	}
	if err == nil {
		p.calls.Cut(backend, providers.ErrLost)
	}
	return err
}

// Delete implements providers.Provider.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !confine.ValidID(id) {
		return nil
	}
	for range 2 { // one that was remembered, and one that has the name in its place
		d, err := p.look(ctx, id)
		if errors.Is(err, providers.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = p.remove(ctx, d.ID)
		}
		if err != nil {
			return err
		}
		p.refs.Forget(id, d.ID)
	}
	return nil
}

// List implements providers.Provider.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	found, err := p.apiList(ctx, remote.Labels{remote.LabelFleet: p.cfg.Fleet})
	if err != nil {
		return nil, err
	}
	all := make([]providers.Instance, 0, len(found))
	for _, d := range found {
		if id := d.Labels[remote.LabelSandbox]; confine.ValidID(id) {
			all = append(all, d.instance())
			p.refs.Set(id, remote.Ref{ID: d.ID})
		}
	}
	return all, nil
}

// Pause implements providers.Pauser by a stop: files stay, processes end. A sandbox that is paused is not removed by
// the backend's clock, which would go on.
func (p *Provider) Pause(ctx context.Context, id string) error {
	d, err := p.look(ctx, id)
	if err == nil {
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil || d.Phase() == remote.PhaseStopped {
		return err
	}
	if err := p.setLife(ctx, d.ID, 0); err != nil && !ownLife(err) {
		return err
	}
	err = p.apiDo(ctx, "pause the sandbox", http.MethodPost, at(d.ID)+"/stop")
	return p.life.Reached(ctx, d, remote.PhaseStopped, err)
}

// Resume implements providers.Pauser. The backend keeps the sandbox for long, until it is told a timeout.
func (p *Provider) Resume(ctx context.Context, id string) error {
	d, err := p.look(ctx, id)
	if err == nil {
		d, err = p.life.Settled(ctx, d)
	}
	if err != nil || d.Phase() == remote.PhaseRuns && d.Until != nil {
		return err
	}
	if d.Phase() != remote.PhaseRuns { // else an earlier call came only so far
		err = p.apiDo(ctx, "resume the sandbox", http.MethodPost, at(d.ID)+"/start")
		if err := p.life.Reached(ctx, d, remote.PhaseRuns, err); err != nil {
			return err
		}
	}
	if err := p.setLife(ctx, d.ID, defaultLife); err != nil && !ownLife(err) {
		return err
	}
	return nil
}

// Ping implements providers.Pinger.
func (p *Provider) Ping(ctx context.Context) error {
	var page struct {
		Items []described `json:"items"`
	}
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: "/sandbox", Query: url.Values{"limit": {"1"}}, Want: []int{http.StatusOK},
		Limit: maxAnswer, Into: &page,
	})
	if err == nil && page.Items == nil {
		err = errNotDaytona
	}
	return listTranslated(err)
}

// SetTimeout implements providers.Timer, in whole minutes. A paused sandbox has no clock there; its resume starts a
// new one.
func (p *Provider) SetTimeout(ctx context.Context, id string, left time.Duration) error {
	d, err := p.look(ctx, id)
	if err != nil || d.Phase() == remote.PhaseStops || d.Phase() == remote.PhaseStopped {
		return err
	}
	return p.setLife(ctx, d.ID, max(left, time.Minute))
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, backend string) {
	if remote.ValidID(backend) {
		p.refs.Set(id, remote.Ref{ID: backend})
	}
}
