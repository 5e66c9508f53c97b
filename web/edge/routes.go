package edge

import (
	"context"
	"time"

	"sandyard/cache"
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
	known   *cache.Cache[string, models.Route]
}

func newRoutes(store *models.Store) *routes {
	return &routes{lookups: newLookups(store.Routes), known: cache.New[string, models.Route](maxRoutes, routeLife)}
}

// find answers like models.Store.Route. Only sandboxes that run are remembered: for the others the next request may
// well be meant to see the change. Nor are those that traffic resumes: it must not miss a pause.
func (k *routes) find(ctx context.Context, id string) (models.Route, error) {
	if found := k.known.Get(id); found != nil {
		return found.Value(), nil
	}
	return k.again(ctx, id)
}

// again asks the database, whatever is remembered. All callers share the few questions of lookups.
func (k *routes) again(ctx context.Context, id string) (models.Route, error) {
	r, err := k.lookups.find(ctx, id)
	if err != nil || r.State != models.SandboxRunning || r.AutoResume {
		k.known.Delete(id)
		return r, err
	}
	k.known.Set(id, r, cache.Life)
	return r, nil
}
