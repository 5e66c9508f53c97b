package docker

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/guestconn"
)

// silence is how long a guest may leave a question unanswered.
const silence = 2 * time.Second

// backend is what guestconn.Guests needs of the engine.
type backend struct{ p *Provider }

var _ guestconn.Backend[resource] = backend{}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	return p.guests.Open(ctx, id)
}

// Change implements guestconn.Backend.
func (b backend) Change(ctx context.Context, id string, do func(resource) error) error {
	return b.p.change(ctx, id, do)
}

// Inspect implements guestconn.Backend.
func (b backend) Inspect(ctx context.Context, id string) (resource, error) {
	return b.p.inspect(ctx, id)
}

// Attach implements guestconn.Backend.
func (b backend) Attach(ctx context.Context, r resource) (guestconn.Stream, error) {
	return b.p.attach(ctx, r.ref)
}

// Settle implements guestconn.Backend: the engine knows of an end at once.
func (backend) Settle(context.Context, resource) {}

// End implements guestconn.Backend. What is left of the container tells the next who asks that it died.
func (b backend) End(ctx context.Context, r resource) error {
	b.p.silent.Store(r.ref, nil)
	if err := b.p.api.ContainerKill(ctx, r.ref, "KILL"); err != nil {
		b.p.silent.Delete(r.ref)
		return engineerr.Translate(err, "kill an unresponsive sandbox")
	}
	return nil
}

func (p *Provider) attach(ctx context.Context, ref string) (guestconn.Stream, error) {
	attached, err := p.api.ContainerAttach(ctx, ref, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, engineerr.Translate(err, "attach to the container")
	}
	return newStream(attached), nil
}
