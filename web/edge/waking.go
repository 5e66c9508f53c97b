package edge

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sandyard/models"
)

const (
	wakePatience = 30 * time.Second // for a paused sandbox to go on
	wakeLook     = 25 * time.Millisecond
)

var errAsleep = errors.New("the sandbox was not resumed in time")

// waking resumes paused sandboxes for those who come to them: however many wait for one, it is asked once.
type waking struct {
	store  *models.Store
	resume func(ctx context.Context, tenantID, sandboxID string) error
	quit   chan struct{}
	work   sync.WaitGroup
	mu     sync.Mutex
	closed bool
	under  map[string]*awakening
}

// awakening is the wait for one sandbox.
type awakening struct {
	done  chan struct{}
	route models.Route
	err   error
}

func newWaking(c Config) *waking {
	return &waking{store: c.Store, resume: c.Resume, under: map[string]*awakening{}, quit: make(chan struct{})}
}

// stop ends every wait. Who comes afterwards is turned away.
func (w *waking) stop() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.quit)
	w.work.Wait()
}

// wakes says whether a request resumes its sandbox. One that asks after its health only asks.
func (w *waking) wakes(r *http.Request, route models.Route, port uint16) bool {
	return w.wakesInside(route) && !asksHealth(r, port)
}

// wakesInside says whether a call to the inside of a sandbox resumes it.
func (w *waking) wakesInside(route models.Route) bool {
	return route.State == models.SandboxPaused && route.AutoResume
}

// wake returns how the sandbox is reached once it runs.
func (w *waking) wake(ctx context.Context, route models.Route) (models.Route, error) {
	a := w.join(context.WithoutCancel(ctx), route) // for all who come, also when the first has left
	if a == nil {
		return route, errAsleep
	}
	select {
	case <-a.done:
		return a.route, a.err
	case <-ctx.Done():
		return route, context.Cause(ctx)
	}
}

// join returns the wait for a sandbox, beginning it where there is none.
func (w *waking) join(life context.Context, route models.Route) *awakening {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	a := w.under[route.SandboxID]
	if a == nil {
		a = &awakening{done: make(chan struct{})}
		w.under[route.SandboxID] = a
		w.work.Go(func() { w.run(life, route, a) })
	}
	return a
}

func (w *waking) run(ctx context.Context, route models.Route, a *awakening) {
	ctx, cancel := context.WithTimeoutCause(ctx, wakePatience, errAsleep)
	defer cancel()
	a.route, a.err = w.until(ctx, route)
	w.mu.Lock()
	delete(w.under, route.SandboxID)
	w.mu.Unlock()
	close(a.done)
}

// until asks for the resume and looks until the sandbox is no longer paused.
func (w *waking) until(ctx context.Context, route models.Route) (models.Route, error) {
	if err := w.resume(ctx, route.TenantID, route.SandboxID); err != nil {
		return route, err
	}
	tick := time.NewTicker(wakeLook)
	defer tick.Stop()
	for {
		now, err := w.store.Route(ctx, route.SandboxID)
		if err != nil || now.State != models.SandboxPaused {
			return now, err
		}
		select {
		case <-tick.C:
		case <-w.quit:
			return route, errAsleep
		case <-ctx.Done():
			return route, context.Cause(ctx)
		}
	}
}
