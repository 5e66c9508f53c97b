package jobs

import (
	"cmp"
	"context"
	"sync"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// roomsFor is how long the largest room of a fleet is believed: creates ask for it.
const roomsFor = 5 * time.Second

// rooms knows what the largest live node of each provider can give one sandbox.
type rooms struct {
	store *models.Store
	mu    sync.Mutex
	known map[string]largest
}

type largest struct {
	room models.Bounds
	at   time.Time
}

func newRooms(store *models.Store) *rooms {
	return &rooms{store: store, known: map[string]largest{}}
}

// check refuses what no live node could give, also if it held nothing else. Without a live node nothing is refused.
func (r *rooms) check(ctx context.Context, provider string, wish providers.Resources) error {
	room, err := r.largest(ctx, provider)
	if err != nil {
		return err
	}
	return cmp.Or(
		granted(
			"cpus",
			wish.CPUs,
			room.CPUs,
		),
		granted("memory_mb", wish.MemoryMB, room.MemoryMB),
		granted("pids", wish.Pids, room.Pids-kind.BesidePids),
	)
}

func granted[N int64 | float64](field string, v, most N) error {
	if most > 0 && v > most {
		return kind.Invalid(field, "is %v, but the largest worker has %v for all its sandboxes; request less", v, most)
	}
	return nil
}

func (r *rooms) largest(ctx context.Context, provider string) (models.Bounds, error) {
	r.mu.Lock()
	known := r.known[provider]
	r.mu.Unlock()
	if time.Since(known.at) < roomsFor {
		return known.room, nil
	}
	room, err := r.store.LargestRoom(ctx, provider)
	if err != nil {
		return room, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[provider] = largest{room: room, at: time.Now()}
	return room, nil
}
