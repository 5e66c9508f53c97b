package jobs

import (
	"context"
	"sync"
	"time"

	"sandyard/models"
)

// depthCache answers whether a tenant's queue is full from a count that is at most a second old: counting at every
// submission would cost more than the submission.
type depthCache struct {
	store *models.Store
	mu    sync.Mutex
	known map[string]depth
}

type depth struct {
	full bool
	at   time.Time
}

func newDepthCache(store *models.Store) *depthCache {
	return &depthCache{store: store, known: map[string]depth{}}
}

// check lets deletes pass in any case: they make room.
func (d *depthCache) check(ctx context.Context, tenant string, args []Args) error {
	if args[0].Kind() == models.KindDelete {
		return nil
	}
	known, due := d.look(tenant)
	if due {
		var err error
		if known, err = d.read(ctx, tenant); err != nil {
			return err
		}
	}
	if known.full {
		return ErrQueueFull
	}
	return nil
}

// look returns what is known, and whether the caller is the one who has to count again.
func (d *depthCache) look(tenant string) (known depth, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = d.known[tenant]
	if due = time.Since(known.at) > time.Second; due {
		d.known[tenant] = depth{full: known.full, at: time.Now()} // the others go by the last count meanwhile
	}
	return known, due
}

func (d *depthCache) read(ctx context.Context, tenant string) (depth, error) {
	full, err := d.store.QueueFull(ctx, tenant)
	if err != nil {
		return depth{}, err
	}
	now := depth{full: full, at: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[tenant] = now
	return now, nil
}
