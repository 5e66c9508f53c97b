package edge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
)

const (
	// However much traffic there is, it is written down as use of its sandbox at most once in a quarter of the
	// sandbox's idle timeout, between these bounds.
	touchLeast   = 250 * time.Millisecond
	touchMost    = 5 * time.Second
	touchTimeout = 10 * time.Second
	touchRest    = time.Second // before it is tried again
)

// activity knows which sandboxes have traffic.
type activity struct {
	store *models.Store
	log   *slog.Logger
	mu    sync.Mutex
	uses  map[string]*use
}

// use is the traffic of one sandbox.
type use struct {
	open  int  // requests under way
	fresh bool // there was some since it was written down
	every time.Duration
	last  time.Time // when it was written down
}

func newActivity(store *models.Store, log *slog.Logger) *activity {
	return &activity{store: store, log: log, uses: map[string]*use{}}
}

// visit counts a request from now until the function it returns is called.
func (a *activity) visit(route models.Route) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.uses[route.SandboxID]
	if u == nil {
		u = &use{}
		a.uses[route.SandboxID] = u
	}
	u.open, u.fresh, u.every = u.open+1, true, touchMost
	if route.IdleMS > 0 {
		u.every = min(max(time.Duration(route.IdleMS)*time.Millisecond/4, touchLeast), touchMost)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		u.open, u.fresh = u.open-1, true
	}
}

// run writes activity down until the life ends, and once more then.
func (a *activity) run(ctx context.Context, life *loop.Life) {
	life.Every(touchLeast, nil, func() { a.write(ctx, a.take(time.Now(), false)) })
	a.write(ctx, a.take(time.Now(), true))
}

// write writes down when sandboxes were used, also where ctx has ended.
func (a *activity) write(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), touchTimeout)
	defer cancel()
	missed, err := a.store.Touch(ctx, ids)
	if err != nil {
		a.log.WarnContext(ctx, "activity not stored, trying again", "sandboxes", len(ids), "error", err)
		a.again(ids, touchRest)
		return
	}
	a.again(missed, touchLeast)
}

// again lets traffic that could not be written down be written down soon: a database that comes back knows nothing of
// it, and who was changing a sandbox need not have counted as its use.
func (a *activity) again(ids []string, rest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if u := a.uses[id]; u != nil {
			u.fresh, u.last = true, u.last.Add(rest-u.every)
		}
	}
}

// take returns the sandboxes whose traffic is to be written down now, or at the end all that have some, and forgets
// those that have none any more. A stream that stays open is activity all the time.
func (a *activity) take(now time.Time, end bool) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []string
	for id, u := range a.uses {
		if now.Sub(u.last) < u.every && !end {
			continue
		}
		switch {
		case u.fresh || u.open > 0:
			ids = append(ids, id)
			u.fresh, u.last = false, now
		default:
			delete(a.uses, id)
		}
	}
	return ids
}
