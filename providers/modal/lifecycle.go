package modal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"strings"

	vendor "github.com/modal-labs/modal-client/go"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// tags are those by which the fleet knows a sandbox as its own.
func (p *Provider) tags(id string) remote.Labels { return remote.Identity(p.cfg.Fleet, id) }

// name is the sandbox's at Modal, where no two that live have the same.
func (p *Provider) name(id string) string {
	fleet := sha256.Sum256([]byte(p.cfg.Fleet))
	return "sandyard-" + hex.EncodeToString(fleet[:4]) + "-" + id
}

// appOf is the app of all sandboxes, which is made where there is none.
func (p *Provider) appOf(ctx context.Context) (*vendor.App, error) {
	p.mu.Lock()
	app := p.app
	p.mu.Unlock()
	if app != nil {
		return app, nil
	}
	app, err := p.askApp(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.app = app
	return app, nil
}

func (p *Provider) askApp(ctx context.Context) (*vendor.App, error) {
	ctx, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	app, err := p.client.Apps.FromName(ctx, p.cfg.App, &vendor.AppFromNameParams{CreateIfMissing: true})
	return app, appTranslated(err)
}

// forgetApp lets the next call look for the app: somebody may have deleted it.
func (p *Provider) forgetApp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.app = nil
}

// Create implements providers.Provider. Modal gives a name once, so that two creates never make two sandboxes: who
// comes second takes what the first has made.
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
	box, err := p.one(ctx, spec.ID)
	if errors.Is(err, providers.ErrNotFound) {
		box, err = p.make(ctx, spec)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	labels, err := p.labels(ctx, box)
	if err != nil {
		return providers.Instance{}, err
	}
	err = p.inside(spec.ID, box, labels).MakeWorkDir(ctx, errNotModal)
	if remote.IsClass(err, providers.Invalid) {
		p.dispose(ctx, spec.ID, box)
	}
	if err != nil {
		return providers.Instance{}, err
	}
	return providers.Instance{ID: spec.ID, Ref: box.SandboxID, State: providers.StateRunning}, nil
}

// make creates the sandbox, or finds the one that has its name.
func (p *Provider) make(ctx context.Context, spec providers.Spec) (*vendor.Sandbox, error) {
	app, err := p.appOf(ctx)
	if err != nil {
		return nil, err
	}
	image := p.client.Images.FromRegistry(spec.Image, nil)
	if strings.HasPrefix(spec.Image, ImageIDPrefix) {
		if image, err = p.client.Images.FromID(ctx, spec.Image, nil); err != nil {
			return nil, createTranslated(err)
		}
	}
	r := spec.Resources
	box, err := p.client.Sandboxes.Create(ctx, app, image, &vendor.SandboxCreateParams{
		Name: p.name(spec.ID), Tags: remote.LabelsOf(p.cfg.Fleet, spec).Ours(), Env: maps.Clone(spec.Env),
		CPU: r.CPUs, CPULimit: r.CPUs, MemoryMiB: int(r.MemoryMB), MemoryLimitMiB: int(r.MemoryMB),
		Timeout: p.cfg.Life, BlockNetwork: !spec.Network, Command: []string{"sleep", "infinity"},
	})
	if err == nil {
		return p.keep(box), p.refuse(spec.ID, box)
	}
	p.forgetApp()
	failed := createTranslated(err)
	taken := is[vendor.AlreadyExistsError](err)
	unknown := remote.IsClass(failed, providers.Unavailable) || remote.IsClass(failed, providers.Internal)
	if ctx.Err() != nil || !taken && !unknown {
		return nil, failed
	}
	if found, lookErr := p.one(ctx, spec.ID); lookErr == nil {
		return found, nil
	}
	return nil, failed
}

// refuse answers an error for an id that no sandbox has.
func (p *Provider) refuse(id string, box *vendor.Sandbox) error {
	if !remote.ValidID(box.SandboxID) {
		return errNotModal
	}
	p.refs.Set(id, remote.Ref{ID: box.SandboxID})
	return nil
}

// one finds the sandbox by its name, among those that live.
func (p *Provider) one(ctx context.Context, id string) (*vendor.Sandbox, error) {
	ctx, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	box, err := p.client.Sandboxes.FromName(ctx, p.cfg.App, p.name(id), nil)
	if err != nil {
		return nil, translated("find the sandbox", err)
	}
	if err := p.refuse(id, box); err != nil {
		return nil, err
	}
	box = p.keep(box)
	labels, err := p.labels(ctx, box)
	if err == nil && !labels.Have(p.tags(id)) { // somebody has given ours to another, or taken its tags
		err = providers.ErrNotFound
	}
	return box, err
}

// labels are what the tags of a sandbox say.
func (p *Provider) labels(ctx context.Context, box *vendor.Sandbox) (remote.Labels, error) {
	ctx, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	tags, err := box.GetTags(ctx, nil)
	return tags, translated("describe a sandbox", err)
}

// keep returns the handle whose connection is used for a sandbox. Where there are too many, any other is forgotten: its
// connection ends when it is idle.
func (p *Provider) keep(box *vendor.Sandbox) *vendor.Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.boxes[box.SandboxID]; known != nil {
		return known
	}
	for backend := range p.boxes {
		if len(p.boxes) < maxOpen {
			break
		}
		delete(p.boxes, backend)
	}
	p.boxes[box.SandboxID] = box
	return box
}

// letGo ends the connection to a sandbox, when what runs over it has ended. The caller holds mu.
func (p *Provider) letGo(backend string) {
	if box := p.boxes[backend]; box != nil {
		delete(p.boxes, backend)
		go func() { _ = box.Detach() }()
	}
}

// dispose removes a sandbox that nobody can use, as far as that can be done now.
func (p *Provider) dispose(ctx context.Context, id string, box *vendor.Sandbox) {
	ctx, stop := remote.Background(ctx)
	defer stop()
	if err := p.remove(ctx, box); err != nil {
		p.log.WarnContext(ctx, "a sandbox that cannot be used was not removed", "sandbox_id", id, "error", err)
	}
}

// look finds a sandbox that lives, and its tags.
func (p *Provider) look(ctx context.Context, id string) (box *vendor.Sandbox, labels remote.Labels, err error) {
	find := func() (string, error) {
		box, err := p.one(ctx, id)
		if err != nil {
			return "", err
		}
		return box.SandboxID, nil
	}
	err = p.refs.Find(id, find, func(backend string) error {
		box, err = p.client.Sandboxes.FromID(ctx, backend, nil)
		if err != nil {
			return translated("find the sandbox", err)
		}
		box = p.keep(box)
		if labels, err = p.labels(ctx, box); err != nil {
			return err
		}
		if !labels.Have(p.tags(id)) { // somebody else's, whatever was remembered
			return providers.ErrNotFound
		}
		return p.lives(ctx, box)
	})
	return box, labels, err
}

// lives answers providers.ErrNotFound for a sandbox that has come to its end.
func (p *Provider) lives(ctx context.Context, box *vendor.Sandbox) error {
	ctx, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	code, err := box.Poll(ctx, nil)
	if err != nil {
		return translated("describe a sandbox", err)
	}
	if code != nil {
		return providers.ErrNotFound
	}
	return nil
}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, labels, err := p.look(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.inside(id, box, labels), nil
}

// remove ends one of Modal's sandboxes.
func (p *Provider) remove(ctx context.Context, box *vendor.Sandbox) error {
	ctx, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	_, err := box.Terminate(ctx, nil)
	if err = translated("delete the sandbox", err); err != nil && !errors.Is(err, providers.ErrNotFound) {
		return err
	}
	p.calls.Cut(box.SandboxID, providers.ErrLost)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letGo(box.SandboxID)
	return nil
}

// Delete implements providers.Provider.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !confine.ValidID(id) {
		return nil
	}
	for range 2 { // one that was remembered, and one that has the name in its place
		box, _, err := p.look(ctx, id)
		if errors.Is(err, providers.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = p.remove(ctx, box)
		}
		if err != nil {
			return err
		}
		p.refs.Forget(id, box.SandboxID)
	}
	return nil
}

// List implements providers.Provider.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	app, err := p.appOf(ctx)
	if err != nil {
		return nil, err
	}
	ours := remote.Labels{remote.LabelFleet: p.cfg.Fleet}
	heard := map[string]described{}
	ctx, stop := context.WithTimeout(overhearing(ctx, heard), remote.Patience)
	defer stop()
	found, err := p.client.Sandboxes.List(ctx, &vendor.SandboxListParams{AppID: app.AppID, Tags: ours})
	if err != nil {
		return nil, listTranslated(err)
	}
	var all []providers.Instance
	seen := 0
	for box, err := range found {
		if err != nil {
			p.forgetApp()
			return nil, listTranslated(err)
		}
		if seen++; seen > maxListed {
			return nil, providers.Internal.Errorf("Modal lists more than %d sandboxes", maxListed)
		}
		d := heard[box.SandboxID]
		delete(heard, box.SandboxID)
		id := d.labels[remote.LabelSandbox]
		if !d.labels.Have(ours) || !confine.ValidID(id) || !remote.ValidID(d.id) { // or it is listed twice
			continue
		}
		all = append(all, providers.Instance{
			ID: id, Ref: d.id, State: providers.StateRunning, CreatedAt: d.created,
		})
		p.refs.Set(id, remote.Ref{ID: d.id})
	}
	return all, nil
}

// Ping implements providers.Pinger.
func (p *Provider) Ping(ctx context.Context) error {
	_, err := p.askApp(ctx)
	return err
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, backend string) {
	if remote.ValidID(backend) {
		p.refs.Set(id, remote.Ref{ID: backend})
	}
}
