// Package fake is a provider in memory, scripted by the jobs it is given: real in every promise of the contract, and
// able to fail in every way a backend can. It exists for tests of what stands above providers.
//
// A command is a shell string of statements such as
//
//	fake:stdout hello; fake:sleep 50ms; fake:exit 3
//
// (see script.go for all of them), and an image such as "fake:busy 2; slow 30ms" tells how its create goes wrong (see
// fault.go). Any other image that begins with "fake" simply works.
package fake

import (
	"context"
	"path"
	"regexp"
	"strings"
	"sync"

	"sandyard/providers"
)

// Options fit one provider.
type Options struct {
	// State is the backend. Providers with the same State are workers on one engine. Nil = one of its own.
	State *State
	// PerNode is what Capabilities says of the backend.
	PerNode bool
}

// Provider is one worker's view of a State. It implements providers.Provider and providers.Pauser.
type Provider struct {
	state   *State
	perNode bool
	closed  chan struct{}
	once    sync.Once
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
)

// New opens a provider over o.State.
func New(o Options) *Provider {
	if o.State == nil {
		o.State = NewState()
	}
	return &Provider{state: o.State, perNode: o.PerNode, closed: make(chan struct{})}
}

// State is the backend, to be asked and broken by tests.
func (p *Provider) State() *State { return p.state }

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Provider:    "fake",
		Exec:        providers.Native,
		Files:       providers.Native,
		Code:        providers.Native,
		FileTools:   providers.Emulated,
		Pause:       providers.Native,
		PauseMemory: providers.Native,
		SplitOutput: providers.Native,
		Stdin:       providers.Native,
		Network:     providers.Emulated,
		Background:  providers.Native,
		Processes:   providers.Native,
		Terminals:   providers.Unsupported,
		Watch:       providers.Unsupported,
		Ports:       providers.Native,
		Images:      providers.Native,
		Builds:      providers.Unsupported,
		Confined:    providers.Native,
		PerNode:     p.perNode,
	}
}

// DiskFree implements providers.DiskReporter.
func (p *Provider) DiskFree(context.Context) (int64, error) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.free, nil
}

// Measure implements providers.Meter.
func (p *Provider) Measure(_ context.Context, boxes []providers.Instance) []providers.Used {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	var all []providers.Used
	for _, b := range boxes {
		if u, ok := p.state.used[b.ID]; ok && p.state.boxes[b.ID] != nil {
			all = append(all, u)
		}
	}
	return all
}

// EngineID is the same for all providers over one State.
func (p *Provider) EngineID(context.Context) (string, error) { return p.state.id, nil }

// Close makes calls in flight return. Sandboxes and their commands go on.
func (p *Provider) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func check(spec providers.Spec) error {
	switch {
	case !validID.MatchString(spec.ID):
		return providers.Invalid.Errorf("sandbox id %q: letters a-z and digits only", spec.ID)
	case spec.Image == "":
		return providers.Invalid.Errorf("the sandbox needs an image")
	case spec.WorkDir != "" && (!path.IsAbs(spec.WorkDir) || path.Clean(spec.WorkDir) != spec.WorkDir):
		return providers.Invalid.Errorf("work directory %q: give an absolute path", spec.WorkDir)
	case spec.Resources.MemoryMB < 0 || spec.Resources.CPUs < 0 || spec.Resources.DiskMB < 0 || spec.Resources.Pids < 0:
		return providers.Invalid.Errorf("resources must not be negative")
	}
	for name, value := range spec.Env {
		if name == "" || strings.ContainsAny(name+value, "\x00") {
			return providers.Invalid.Errorf("environment variable %q", name)
		}
	}
	if !strings.HasPrefix(spec.Image, "fake") {
		return providers.ImageMissing.Errorf("no image %q; images of the fake provider begin with fake", spec.Image)
	}
	return nil
}

// Create implements providers.Provider.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	if err := check(spec); err != nil {
		return providers.Instance{}, err
	}
	if err := p.state.scriptCreate(spec.ID, spec.Image); err != nil {
		return providers.Instance{}, err
	}
	var made providers.Instance
	err := p.Call(ctx, OpCreate, spec.ID, func() error {
		made = p.state.make(spec).instance()
		return nil
	})
	if err != nil {
		return providers.Instance{}, err
	}
	return made, nil
}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	err := p.Call(ctx, OpOpen, id, func() error {
		_, err := p.state.running(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox{p: p, id: id}, nil
}

// Pause implements providers.Pauser.
func (p *Provider) Pause(ctx context.Context, id string) error {
	return p.Call(ctx, OpPause, id, func() error { return p.state.setPaused(id, true) })
}

// Resume implements providers.Pauser.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.Call(ctx, OpResume, id, func() error { return p.state.setPaused(id, false) })
}

// Delete implements providers.Provider.
func (p *Provider) Delete(ctx context.Context, id string) error {
	return p.Call(ctx, OpDelete, id, func() error {
		p.state.Vanish(id)
		return nil
	})
}

// List implements providers.Provider.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	var found []providers.Instance
	err := p.Call(ctx, OpList, "", func() error {
		found = p.state.List()
		return nil
	})
	return found, err
}

// Call runs one operation with the faults that are set for it, as a network would: before it, or after it took effect.
// Tests add operations by it.
func (p *Provider) Call(ctx context.Context, op Op, id string, do func() error) error {
	if err := p.usable(ctx); err != nil {
		return err
	}
	f, faulty := p.state.takeFault(op, id)
	if !faulty {
		return do()
	}
	if f.After {
		if err := do(); err != nil {
			return err
		}
		return p.suffer(ctx, f)
	}
	if err := p.suffer(ctx, f); err != nil {
		return err
	}
	return do()
}

func (p *Provider) usable(ctx context.Context) error {
	select {
	case <-p.closed:
		return providers.Unavailable.Errorf("the provider is closed")
	default:
	}
	if err := ctx.Err(); err != nil {
		return detached(err)
	}
	return nil
}

func detached(err error) error {
	return providers.Unavailable.Errorf("the call was given up: %w", err)
}
