//go:build attack

package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// walk calls visit for every route, a few at a time, and fails where one was left out.
func (s *stage) walk(visit func(route)) {
	queue := make(chan route)
	var visitors sync.WaitGroup
	var mu sync.Mutex
	visited := map[string]bool{}
	for range 4 {
		visitors.Go(func() {
			for to := range queue {
				visit(to)
				mu.Lock()
				visited[to.String()] = true
				mu.Unlock()
			}
		})
	}
	whole := s.hand(queue)
	close(queue)
	visitors.Wait()
	if !whole {
		return
	}
	for _, to := range s.routes {
		if !visited[to.String()] {
			s.breach("a route was not walked: %v", to)
		}
	}
}

// hand gives the routes to the visitors until the API has ended, which the watch tells, or the time is over.
func (s *stage) hand(queue chan<- route) (whole bool) {
	for _, to := range s.routes {
		select {
		case queue <- to:
		case <-s.processes["api"].Done():
			return false
		case <-s.over:
			s.breach("the walk took longer than %v", longest)
			return false
		}
	}
	return true
}

// ownIDs are the intruder's own sandbox, and for deletes what is not there.
func (s *stage) ownIDs(to route, prey string) func(string) string {
	return func(what string) string {
		if what == "sandboxes" && to.method != "DELETE" {
			return prey
		}
		return orElse(wellFormed(what), "nothing")
	}
}

// tally counts answers by their status.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (a *tally) add(r reply) {
	key := fmt.Sprint(r.status)
	if r.err != nil {
		key = "cut off"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		a.count = map[string]int{}
	}
	a.count[key]++
}

func (a *tally) of(key string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[key]
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(a.count)) {
		all = append(all, fmt.Sprintf("%s: %d", key, a.count[key]))
	}
	return strings.Join(all, ", ")
}
