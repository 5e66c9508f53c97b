package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs/loop"
)

const (
	// removalsAtOnce is how many resources a reconciler removes at once.
	removalsAtOnce = 8
	// removalTimeout bounds the removal of one.
	removalTimeout = time.Minute
)

// removals are what a reconciler removes beside its comparisons. What hangs takes one of few places and keeps neither a
// comparison nor, as it is tried last from then on, other removals waiting for good.
type removals struct {
	places errgroup.Group

	mu       sync.Mutex
	underWay map[string]bool
	failed   map[string]int // in which round it failed last
	round    int
	errs     []error // since the last report
	failures int     // likewise
}

func newRemovals() *removals {
	r := &removals{underWay: map[string]bool{}, failed: map[string]int{}}
	r.places.SetLimit(removalsAtOnce)
	return r
}

// busy are the ids whose removal is under way.
func (r *removals) busy() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.underWay)
}

// begin removes as many of the ids as there are free places, those that have not failed first, and does not wait for
// them. The ids in busy are left for the next time. What it is not called with any more is forgotten.
func (r *removals) begin(
	ctx context.Context,
	ids []string,
	busy map[string]bool,
	remove func(context.Context, string) error,
) {
	for _, id := range r.inTurn(ids, busy) {
		if !r.places.TryGo(func() error {
			ctx, cancel := context.WithTimeout(ctx, removalTimeout)
			defer cancel()
			r.end(id, remove(ctx, id))
			return nil
		}) {
			r.end(id, nil) // next time
		}
	}
}

// inTurn marks those that are not under way yet as such, and puts them in order.
func (r *removals) inTurn(ids []string, busy map[string]bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	for id := range r.failed {
		if !slices.Contains(ids, id) {
			delete(r.failed, id)
		}
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return busy[id] || r.underWay[id] })
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(r.failed[a], r.failed[b]) })
	for _, id := range ids {
		r.underWay[id] = true
	}
	return ids
}

func (r *removals) end(id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underWay, id)
	if err == nil {
		return
	}
	r.failed[id] = r.round
	if r.failures++; r.failures <= loop.ToldFailures {
		r.errs = append(r.errs, fmt.Errorf("remove what is left of sandbox %s: %w", id, err))
	}
}

// report returns what has failed since it was last asked.
func (r *removals) report() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > loop.ToldFailures {
		r.errs = append(r.errs, fmt.Errorf("%d in all", r.failures))
	}
	err := errors.Join(r.errs...)
	r.errs, r.failures = nil, 0
	return err
}

// wait returns when nothing is under way. Nobody begins anything meanwhile.
func (r *removals) wait() { _ = r.places.Wait() }
