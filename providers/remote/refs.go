package remote

import (
	"context"
	"errors"
	"sync"

	"sandyard/providers"
	"sandyard/providers/confine"
)

const maxRefs = 10_000

// Ref is how a backend knows a sandbox.
type Ref struct {
	ID      string // the backend's
	Traffic string // token for the sandbox's ports; empty = not known
}

// Refs remember how the backend knows sandboxes. What is forgotten is looked up again.
type Refs struct {
	mu    sync.Mutex
	known map[string]Ref
}

// NewRefs returns an empty memory, which never holds more than 10,000 sandboxes.
func NewRefs() *Refs { return &Refs{known: map[string]Ref{}} }

// Get returns what is known of a sandbox.
func (r *Refs) Get(id string) (Ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[id]
	return found, ok
}

// Set remembers a sandbox; a token that is not told stays as it is known.
func (r *Refs) Set(id string, to Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.known[id]; ok && to.Traffic == "" && old.ID == to.ID {
		to.Traffic = old.Traffic
	}
	for other := range r.known { // any: a miss costs one question
		if len(r.known) < maxRefs {
			break
		}
		delete(r.known, other)
	}
	r.known[id] = to
}

// Forget drops what is known of a sandbox if it is still that.
func (r *Refs) Forget(id, backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id].ID == backend {
		delete(r.known, id)
	}
}

// Find calls do with the backend's id of a sandbox. What is remembered may be outdated: then one looks the sandbox up.
// Error: NotFound for a sandbox that is not there.
func (r *Refs) Find(id string, one func() (backend string, err error), do func(backend string) error) error {
	if !confine.ValidID(id) {
		return providers.ErrNotFound
	}
	known, ok := r.Get(id)
	if ok {
		err := do(known.ID)
		if !errors.Is(err, providers.ErrNotFound) {
			return err
		}
		r.Forget(id, known.ID)
	}
	backend, err := one()
	if err != nil {
		return err
	}
	if ok && backend == known.ID {
		return providers.ErrNotFound // a list lags behind
	}
	r.Set(id, Ref{ID: backend})
	return do(backend)
}

// Calls are those under way in sandboxes, which a pause cuts: the backend may only let them stand still.
type Calls struct {
	mu      sync.Mutex
	running map[string]map[*call]struct{}
}

type call struct{ cancel context.CancelCauseFunc }

// NewCalls returns an empty set.
func NewCalls() *Calls { return &Calls{running: map[string]map[*call]struct{}{}} }

// Begin returns a context for a call in a sandbox, which has no deadline: a backend may end the program at it.
func (c *Calls) Begin(ctx context.Context, backend string) (inside context.Context, end func()) {
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

// Cut ends the calls in one sandbox; why becomes the cause of their contexts.
func (c *Calls) Cut(backend string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.running[backend] {
		one.cancel(why)
	}
}

// CutAll ends all calls.
func (c *Calls) CutAll(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.running {
		for one := range all {
			one.cancel(why)
		}
	}
}
