package edge

import (
	"context"
	"sync"
	"time"

	"sandyard/models"
)

const (
	// routeLife is how long a route is believed: a sandbox that was paused, ended or moved is found out after that.
	routeLife = time.Second
	maxRoutes = 10_000
)

// routes remembers for a moment how sandboxes are reached.
type routes struct {
	lookups *lookups
	mu      sync.Mutex
	known   map[string]knownRoute
}

type knownRoute struct {
	route models.Route
	at    time.Time
}

func newRoutes(store *models.Store) *routes {
	return &routes{lookups: newLookups(store.Routes), known: map[string]knownRoute{}}
}

// find answers like models.Store.Route. Only sandboxes that run are remembered: for the others the next request may
// well be meant to see the change. Nor are those that traffic resumes: it must not miss a pause.
func (k *routes) find(ctx context.Context, id string) (models.Route, error) {
	k.mu.Lock()
	found, ok := k.known[id]
	k.mu.Unlock()
	if ok && time.Since(found.at) < routeLife {
		return found.route, nil
	}
	return k.again(ctx, id)
}

// again asks the database, whatever is remembered. All callers share the few questions of lookups.
func (k *routes) again(ctx context.Context, id string) (models.Route, error) {
	r, err := k.lookups.find(ctx, id)
	if err != nil || r.State != models.SandboxRunning || r.AutoResume {
		k.forget(id)
		return r, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= maxRoutes {
		clear(k.known)
	}
	k.known[id] = knownRoute{r, time.Now()}
	return r, nil
}

func (k *routes) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, id)
}
