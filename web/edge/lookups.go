package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"sandyard/models"
)

const (
	// Anybody can ask the edge for as many sandboxes as he likes, so all who ask share this many questions to PostgreSQL
	// at a time, each of which is for so many sandboxes at most.
	maxQuestions   = 2
	maxAsked       = 500
	lookupPatience = 10 * time.Second
	// maxWaiting is how many sandboxes may wait to be asked for.
	maxWaiting = 10_000
)

var errCrowded = errors.New("too many sandbox lookups at once")

// lookups ask PostgreSQL how sandboxes are reached: for one at once, and in a crowd for many together.
type lookups struct {
	ask     func(ctx context.Context, ids []string) ([]models.Route, error)
	mu      sync.Mutex
	waiting map[string]*lookup // that no question under way is for
	asking  int                // questions under way
	stopped bool
	work    sync.WaitGroup
}

// lookup is the wait for one sandbox.
type lookup struct {
	done  chan struct{}
	route models.Route
	err   error
}

func newLookups(ask func(ctx context.Context, ids []string) ([]models.Route, error)) *lookups {
	return &lookups{ask: ask, waiting: map[string]*lookup{}}
}

// find answers like models.Store.Route. What it says was so after it was called.
func (l *lookups) find(ctx context.Context, id string) (models.Route, error) {
	found, err := l.join(context.WithoutCancel(ctx), id) // for all who ask, also when the first has left
	if err != nil {
		return models.Route{}, err
	}
	select {
	case <-found.done:
		return found.route, found.err
	case <-ctx.Done():
		return models.Route{}, context.Cause(ctx)
	}
}

func (l *lookups) join(life context.Context, id string) (*lookup, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.waiting[id]; found != nil {
		return found, nil
	}
	if l.stopped || len(l.waiting) >= maxWaiting {
		return nil, errCrowded
	}
	found := &lookup{done: make(chan struct{})}
	l.waiting[id] = found
	if l.asking < maxQuestions {
		l.asking++
		l.work.Go(func() { l.run(life) })
	}
	return found, nil
}

// stop waits for the questions under way. Who comes afterwards is turned away.
func (l *lookups) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.work.Wait()
}

// run asks until nobody waits any more.
func (l *lookups) run(ctx context.Context) {
	for {
		some := l.take()
		if len(some) == 0 {
			return
		}
		l.answer(ctx, some)
	}
}

// take returns some of those that wait, or none where the question is over.
func (l *lookups) take() map[string]*lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := make(map[string]*lookup, min(len(l.waiting), maxAsked))
	for id, found := range l.waiting {
		if len(some) == maxAsked {
			break
		}
		some[id] = found
		delete(l.waiting, id)
	}
	if len(some) == 0 {
		l.asking--
	}
	return some
}

func (l *lookups) answer(ctx context.Context, some map[string]*lookup) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	ids := make([]string, 0, len(some))
	for id := range some {
		ids = append(ids, id)
	}
	routes, err := l.ask(ctx, ids)
	for _, found := range some {
		if found.err = err; err == nil {
			found.err = models.ErrNotFound
		}
	}
	for _, r := range routes {
		if found := some[r.SandboxID]; found != nil && err == nil {
			found.route, found.err = r, nil
		}
	}
	for _, found := range some {
		close(found.done)
	}
}
