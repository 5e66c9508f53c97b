package queue

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/models"
)

// reread is how often the jobs that clients wait for are looked at, in case a notice was lost: in one statement for all
// of them, up to rereadMost.
const (
	reread     = time.Second
	rereadMost = 1000
)

// newborn is how long a new job is only listened for; one that ended before that could be heard is found after it.
const newborn = 25 * time.Millisecond

// Waiters tells the clients of one process when the jobs they wait for have ended, over a single subscription.
type Waiters struct {
	store *models.Store
	sub   *redis.PubSub
	stop  context.CancelFunc
	done  sync.WaitGroup
	mu    sync.Mutex
	of    map[string][]chan struct{}
}

// NewWaiters subscribes to the ends of all jobs.
func NewWaiters(ctx context.Context, store *models.Store, rdb redis.UniversalClient) *Waiters {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Waiters{store: store, sub: rdb.PSubscribe(ctx, doneChannel+"*"), stop: stop, of: map[string][]chan struct{}{}}
	w.done.Go(func() { w.look(life) })
	messages := w.sub.Channel(redis.WithChannelSize(4096))
	w.done.Go(func() {
		for m := range messages {
			w.tell(strings.TrimPrefix(m.Channel, doneChannel))
		}
	})
	return w
}

// Close ends the subscription. Clients that still wait get their answer at the end of their wait.
func (w *Waiters) Close() error {
	w.stop()
	err := w.sub.Close()
	w.done.Wait()
	return err
}

// Wait returns the job once it has ended, or as it stands when limit or ctx is over. Giving up never touches the job.
func (w *Waiters) Wait(ctx context.Context, tenantID, id string, limit time.Duration) (models.Job, error) {
	return w.wait(ctx, tenantID, id, limit, 0)
}

// WaitNew is Wait for a job that was submitted this instant. It is not looked at at once: its end is likely still to be
// told.
func (w *Waiters) WaitNew(ctx context.Context, tenantID, id string, limit time.Duration) (models.Job, error) {
	return w.wait(ctx, tenantID, id, limit, newborn)
}

func (w *Waiters) wait(ctx context.Context, tenantID, id string, limit, first time.Duration) (models.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	told := w.join(id)
	defer w.leave(id, told)
	if first > 0 {
		listen(ctx, told, first)
	}
	for {
		j, err := w.store.Job(context.WithoutCancel(ctx), tenantID, id)
		if err != nil || j.State.Terminal() || ctx.Err() != nil {
			return j, err
		}
		select {
		case <-told:
		case <-ctx.Done():
		}
	}
}

// look finds the jobs that have ended without a notice, until ctx ends.
func (w *Waiters) look(ctx context.Context) {
	tick := time.NewTicker(reread)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for ids := range slices.Chunk(w.awaited(), rereadMost) {
			ended, err := w.store.EndedJobs(ctx, ids)
			if err != nil {
				break // the next look may find PostgreSQL again
			}
			for _, id := range ended {
				w.tell(id)
			}
		}
	}
}

func (w *Waiters) awaited() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.of))
}

// listen returns when it is told, after most, or when ctx is over.
func listen(ctx context.Context, told <-chan struct{}, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-told:
	case <-t.C:
	case <-ctx.Done():
	}
}

func (w *Waiters) join(id string) chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[id] = append(w.of[id], c)
	return c
}

func (w *Waiters) leave(id string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.of[id][:0]
	for _, other := range w.of[id] {
		if other != c {
			rest = append(rest, other)
		}
	}
	if w.of[id] = rest; len(rest) == 0 {
		delete(w.of, id)
	}
}

func (w *Waiters) tell(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.of[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
