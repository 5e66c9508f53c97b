package edge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandyard/models"
)

const (
	// touchEvery is how often traffic is written down as use of its sandboxes, however much of it there is.
	touchEvery   = 5 * time.Second
	touchTimeout = 10 * time.Second
)

// activity knows which sandboxes have traffic.
type activity struct {
	store *models.Store
	log   *slog.Logger
	quit  chan struct{}
	once  sync.Once
	mu    sync.Mutex
	open  map[string]int      // requests under way
	seen  map[string]struct{} // since the last time they were written down
}

func newActivity(store *models.Store, log *slog.Logger) *activity {
	return &activity{store: store, log: log, quit: make(chan struct{}), open: map[string]int{}, seen: map[string]struct{}{}}
}

// visit counts a request from now until the function it returns is called.
func (a *activity) visit(id string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[id]++
	a.seen[id] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen[id] = struct{}{}
		if a.open[id]--; a.open[id] == 0 {
			delete(a.open, id)
		}
	}
}

// run writes activity down until stop, and once more then.
func (a *activity) run() {
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.write()
		case <-a.quit:
			a.write()
			return
		}
	}
}

func (a *activity) stop() { a.once.Do(func() { close(a.quit) }) }

func (a *activity) write() {
	ids := a.take()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), touchTimeout)
	defer cancel()
	if err := a.store.Touch(ctx, ids); err != nil {
		a.log.WarnContext(ctx, "activity not written down", "sandboxes", len(ids), "error", err)
	}
}

// take returns the sandboxes with traffic since the last call.
func (a *activity) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make([]string, 0, len(a.seen))
	for id := range a.seen {
		ids = append(ids, id)
	}
	clear(a.seen)
	for id := range a.open {
		a.seen[id] = struct{}{} // a stream that stays open is activity the next time, too
	}
	return ids
}
