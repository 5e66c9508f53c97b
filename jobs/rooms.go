package jobs

import (
	"context"
	"time"

	"sandyard/cache"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// roomsFor is how long the largest room of a fleet is believed: creates ask for it.
	roomsFor = 5 * time.Second
	// mostRooms is more than there are providers.
	mostRooms = 100
)

// rooms knows what the largest live node of each provider can give one sandbox.
type rooms struct {
	store *models.Store
	known *cache.Cache[string, models.Bounds] // by provider
}

func newRooms(store *models.Store) *rooms {
	return &rooms{store: store, known: cache.New[string, models.Bounds](mostRooms, roomsFor)}
}

// check refuses what no live node could give, also if it held nothing else. Without a live node nothing is refused.
func (r *rooms) check(ctx context.Context, provider string, wish providers.Resources) error {
	room, err := r.largest(ctx, provider)
	if err != nil {
		return err
	}
	room.Pids -= kind.BesidePids
	if field, asked, most := above(wish, providers.Resources(room)); field != "" {
		return kind.Invalid(
			field,
			"is %v, but the largest worker has %v for all its sandboxes; request less",
			asked,
			most,
		)
	}
	return nil
}

func (r *rooms) largest(ctx context.Context, provider string) (models.Bounds, error) {
	if known := r.known.Get(provider); known != nil {
		return known.Value(), nil
	}
	room, err := r.store.LargestRoom(ctx, provider)
	if err == nil {
		r.known.Set(provider, room, cache.Life)
	}
	return room, err
}
