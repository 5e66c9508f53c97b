package e2b

import (
	"context"
	"sync"
)

const maxRefs = 10_000

// ref is how the backend knows a sandbox.
type ref struct {
	id      string // the backend's
	traffic string // token for the sandbox's ports; empty = not known
}

// refs remember how the backend knows sandboxes. What is forgotten is looked up again.
type refs struct {
	mu    sync.Mutex
	known map[string]ref
}

func newRefs() *refs { return &refs{known: map[string]ref{}} }

func (r *refs) get(id string) (ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[id]
	return found, ok
}

// set remembers a sandbox; a token that is not told stays as it is known.
func (r *refs) set(id string, to ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.known[id]; ok && to.traffic == "" && old.id == to.id {
		to.traffic = old.traffic
	}
	for other := range r.known { // any: a miss costs one question
		if len(r.known) < maxRefs {
			break
		}
		delete(r.known, other)
	}
	r.known[id] = to
}

// forget drops what is known of a sandbox if it is still that.
func (r *refs) forget(id, backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id].id == backend {
		delete(r.known, id)
	}
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, backend string) {
	if validRef(backend) {
		p.refs.set(id, ref{id: backend})
	}
}

// gates let one caller for each sandbox in at a time.
type gates struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

func newGates() *gates { return &gates{busy: map[string]chan struct{}{}} }

// enter waits for its turn; leave must be called if there is no error.
func (g *gates) enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		g.mu.Lock()
		taken, ok := g.busy[id]
		if !ok {
			mine := make(chan struct{})
			g.busy[id] = mine
			g.mu.Unlock()
			return func() {
				g.mu.Lock()
				delete(g.busy, id)
				g.mu.Unlock()
				close(mine)
			}, nil
		}
		g.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, unavailable("the sandbox's create was not waited for", ctx.Err())
		}
	}
}

// calls are those under way in sandboxes, which a pause cuts: the backend may only let them stand still.
type calls struct {
	mu      sync.Mutex
	running map[string]map[*call]struct{}
}

type call struct{ cancel context.CancelCauseFunc }

func newCalls() *calls { return &calls{running: map[string]map[*call]struct{}{}} }

// begin returns a context for a call in a sandbox, which has no deadline: envd would end the program at it.
func (c *calls) begin(ctx context.Context, backend string) (inside context.Context, end func()) {
	inside, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	mine := &call{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[backend] == nil {
		c.running[backend] = map[*call]struct{}{}
	}
	c.running[backend][mine] = struct{}{}
	return inside, func() {
		stop()
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.running[backend], mine); len(c.running[backend]) == 0 {
			delete(c.running, backend)
		}
	}
}

func (c *calls) cut(backend string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.running[backend] {
		one.cancel(why)
	}
}

func (c *calls) cutAll(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.running {
		for one := range all {
			one.cancel(why)
		}
	}
}
