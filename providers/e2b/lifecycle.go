package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// tags are the labels by which the fleet knows a sandbox as its own.
func (p *Provider) tags(id string) remote.Labels { return remote.Identity(p.cfg.Fleet, id) }

// Create implements providers.Provider. The backend names sandboxes itself and would make as many as it is asked for,
// so a sandbox is looked for before it is made and afterwards; of several the oldest stays.
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
	found, err := p.one(ctx, spec.ID)
	if errors.Is(err, providers.ErrNotFound) {
		found, err = p.make(ctx, spec)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	if found.state() == providers.StateRunning {
		if err := p.prepare(ctx, found, spec); err != nil {
			return providers.Instance{}, err
		}
	}
	return found.instance(), nil
}

// one finds the sandbox, and removes all but the oldest of those that carry its id.
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

// make creates the sandbox.
func (p *Provider) make(ctx context.Context, spec providers.Spec) (described, error) {
	w := wish{
		Template: spec.Image, Timeout: seconds(spec.Timeout), Secure: true, Internet: spec.Network,
		Metadata: remote.LabelsOf(p.cfg.Fleet, spec), Env: maps.Clone(spec.Env),
	}
	if w.Env == nil {
		w.Env = map[string]string{}
	}
	made, err := p.apiCreate(ctx, w, p.createKey(w))
	if err != nil {
		if e := providers.AsError(err); e.Class != providers.Unavailable && e.Class != providers.Internal ||
			ctx.Err() != nil {
			return described{}, err
		}
		// Nobody knows what became of it.
		if found, lookErr := p.one(ctx, spec.ID); lookErr == nil {
			return found, nil
		}
		return described{}, err
	}
	found, err := p.one(ctx, spec.ID)
	if errors.Is(err, providers.ErrNotFound) { // its list lags behind
		found, err = p.apiGet(ctx, made.ID)
		if err == nil && !found.Metadata.Have(p.tags(spec.ID)) {
			err = errNotE2B
		}
		if errors.Is(err, providers.ErrNotFound) {
			err = providers.Unavailable.Errorf("E2B does not know the new sandbox yet; try again")
		}
	}
	if err == nil && found.ID == made.ID {
		if found.Token, found.Domain = made.Token, made.Domain; made.Traffic != nil {
			p.refs.Set(spec.ID, remote.Ref{ID: made.ID, Traffic: *made.Traffic})
		}
	}
	return found, err
}

// createKey names a create: a server that knows such keys answers a repeated one with the sandbox that it has made.
func (p *Provider) createKey(w wish) string {
	text, err := json.Marshal(w)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte("sandyard create "), text...))
	return hex.EncodeToString(sum[:16])
}

// prepare sees to the work directory.
func (p *Provider) prepare(ctx context.Context, d described, spec providers.Spec) error {
	var err error
	if d.Token == "" { // lists tell no token
		if d, err = p.apiGet(ctx, d.ID); err != nil {
			return err
		}
	}
	box, err := p.inside(spec.ID, d)
	if err == nil {
		err = box.MakeWorkDir(ctx, errNotE2B)
	}
	if err == nil || providers.AsError(err).Class != providers.Invalid {
		return err
	}
	ctx, stop := remote.Background(ctx)
	defer stop()
	if gone := p.remove(ctx, d.ID); gone != nil {
		p.log.WarnContext(ctx, "a sandbox without a work directory was not removed", "sandbox_id", spec.ID, "error", gone)
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

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	var d described
	err := p.found(ctx, id, func(backend string) (err error) {
		d, err = p.apiGet(ctx, backend)
		if err == nil && !d.Metadata.Have(p.tags(id)) { // somebody else's, whatever was remembered
			err = providers.ErrNotFound
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case d.state() == providers.StatePaused:
		return nil, providers.ErrPaused
	}
	return p.inside(id, d)
}

// remove deletes one of the backend's sandboxes.
func (p *Provider) remove(ctx context.Context, backend string) error {
	err := p.apiSimple(ctx, "delete the sandbox", http.MethodDelete, "/sandboxes/"+backend, nil)
	if errors.Is(err, providers.ErrNotFound) {
		err = nil
	}
	if err == nil {
		p.calls.Cut(backend, providers.ErrLost)
	}
	return err
}

// Delete implements providers.Provider. It removes every sandbox that carries the id.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !confine.ValidID(id) {
		return nil
	}
	found, err := p.apiList(ctx, p.tags(id))
	if err != nil {
		return err
	}
	known, ok := p.refs.Get(id)
	if ok && !slices.ContainsFunc(found, func(d described) bool { return d.ID == known.ID }) { // its list may lag behind
		d, err := p.apiGet(ctx, known.ID)
		switch {
		case err == nil && d.Metadata.Have(p.tags(id)):
			found = append(found, d)
		case err != nil && !errors.Is(err, providers.ErrNotFound):
			return err
		}
	}
	for _, d := range found {
		if err := p.remove(ctx, d.ID); err != nil {
			return err
		}
	}
	p.refs.Forget(id, known.ID)
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
		if confine.ValidID(d.Metadata[remote.LabelSandbox]) {
			all = append(all, d.instance())
			p.refs.Set(d.Metadata[remote.LabelSandbox], remote.Ref{ID: d.ID})
		}
	}
	return all, nil
}

// Pause implements providers.Pauser.
func (p *Provider) Pause(ctx context.Context, id string) error {
	return p.found(ctx, id, func(backend string) error {
		err := p.apiSimple(
			ctx,
			"pause the sandbox",
			http.MethodPost,
			"/sandboxes/"+backend+"/pause",
			map[string]bool{"memory": true},
		)
		if errors.Is(err, &providers.Error{Class: providers.Busy}) { // or paused already, which has the same status
			if d, getErr := p.apiGet(ctx, backend); getErr == nil && d.state() == providers.StatePaused {
				err = nil
			}
		}
		if err == nil {
			p.calls.Cut(backend, providers.ErrPaused)
		}
		return err
	})
}

// Resume implements providers.Pauser. The backend keeps the sandbox for the configured timeout until it is told
// another.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.found(ctx, id, func(backend string) error {
		a, err := p.apiConnect(ctx, backend)
		if err == nil && a.Traffic != nil {
			p.refs.Set(id, remote.Ref{ID: backend, Traffic: *a.Traffic})
		}
		return err
	})
}

// Ping implements providers.Pinger.
func (p *Provider) Ping(ctx context.Context) error {
	var none []described
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: "/v2/sandboxes", Query: url.Values{"limit": {"1"}}, Want: []int{http.StatusOK},
		Limit: maxAnswer, Into: &none,
	})
	return translated("list sandboxes", err)
}

// SetTimeout implements providers.Timer; a longer one than the account permits is set as that. A paused sandbox has no
// clock there; its resume starts a new one.
func (p *Provider) SetTimeout(ctx context.Context, id string, left time.Duration) error {
	return p.found(ctx, id, func(backend string) error {
		err := p.apiSimple(
			ctx,
			"set the sandbox's timeout",
			http.MethodPost,
			"/sandboxes/"+backend+"/timeout",
			map[string]int64{"timeout": seconds(p.atMost(left))},
		)
		if !errors.Is(err, providers.ErrNotFound) {
			return err
		}
		if d, getErr := p.apiGet(ctx, backend); getErr == nil && d.state() == providers.StatePaused {
			return nil
		}
		return err
	})
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, backend string) {
	if remote.ValidID(backend) {
		p.refs.Set(id, remote.Ref{ID: backend})
	}
}
