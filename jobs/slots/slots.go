// Package slots shares the places of a worker out among tenants: who has the fewest gets the next.
package slots

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
)

// errClosed: nobody starts any more.
var errClosed = errors.New("the worker is stopping")

// Lane bounds the starts of one lane on a worker. Of the tenants whose jobs wait, the one with the fewest slots gets
// the next; while no other tenant waits, one may have as many as the lane lets a tenant have.
type Lane struct {
	most int // attempts of one tenant, with those that have given their slot back

	mu      sync.Mutex
	free    int
	turns   int // grants and tenants that have come, so far
	tenants map[string]*share
	closed  bool
	idle    chan struct{} // closed when the lane is closed and no attempt is left
}

// share is what one tenant has of a lane.
type share struct {
	starting int // attempts with a slot
	resting  int // attempts that have given it back
	last     int // turn of the last grant; 0 = it had none
	came     int // turn of its coming
	waiting  []*waiter
}

type waiter struct {
	ready chan struct{}
	slot  *Slot // nil when ready = the lane is closed
}

// Slot is one attempt's place in a lane. Its methods may be called concurrently, and again.
type Slot struct {
	lane    *Lane
	tenant  string
	resting bool
	ended   bool
}

// New returns a lane of n slots, in which one tenant has at most so many attempts, with those that only wait.
func New(n, most int) *Lane {
	return &Lane{most: most, free: n, tenants: map[string]*share{}, idle: make(chan struct{})}
}

// Take waits for a slot until ctx ends or the lane is closed. It calls waits first, if there is no slot at once.
func (s *Lane) Take(ctx context.Context, tenantID string, waits func()) (*Slot, error) {
	w := s.line(tenantID)
	select {
	case <-w.ready:
	default:
		waits()
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		s.leave(tenantID, w)
	}
	if w.slot == nil {
		return nil, cmp.Or(context.Cause(ctx), errClosed)
	}
	return w.slot, nil
}

// line puts a new waiter into the tenant's line.
func (s *Lane) line(tenantID string) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{ready: make(chan struct{})}
	if s.closed {
		close(w.ready)
		return w
	}
	of := s.tenants[tenantID]
	if of == nil {
		s.turns++
		of = &share{came: s.turns}
		s.tenants[tenantID] = of
	}
	of.waiting = append(of.waiting, w)
	s.grant()
	return w
}

// leave takes a waiter out of its line, unless it was given a slot.
func (s *Lane) leave(tenantID string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.tenants[tenantID]; w.slot == nil && of != nil {
		of.waiting = slices.DeleteFunc(of.waiting, func(other *waiter) bool { return other == w })
		s.forget(tenantID)
	}
}

// grant gives the free slots to those who wait, as far as they may have them.
func (s *Lane) grant() {
	for s.free > 0 {
		tenant, of := s.next()
		if of == nil {
			return
		}
		w := of.waiting[0]
		of.waiting = of.waiting[1:]
		s.free--
		s.turns++
		of.starting++
		of.last = s.turns
		w.slot = &Slot{lane: s, tenant: tenant}
		close(w.ready)
	}
}

// next is the tenant whose turn it is: the one with the fewest slots, and of several the one that has waited for
// longest.
func (s *Lane) next() (tenantID string, best *share) {
	for name, of := range s.tenants {
		if len(of.waiting) == 0 || of.starting+of.resting >= s.most {
			continue
		}
		if best == nil ||
			cmp.Or(
				cmp.Compare(of.starting, best.starting),
				cmp.Compare(of.last, best.last),
				cmp.Compare(of.came, best.came),
			) < 0 {
			tenantID, best = name, of
		}
	}
	return tenantID, best
}

// forget drops what is known of a tenant that has nothing here, and says so where it was the last of a closed lane.
func (s *Lane) forget(tenantID string) {
	if of := s.tenants[tenantID]; of.starting+of.resting+len(of.waiting) == 0 {
		delete(s.tenants, tenantID)
	}
	s.tellIdle()
}

// Close lets nobody start any more. The channel it returns is closed when the last attempt has ended.
func (s *Lane) Close() (idle <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.idle
	}
	s.closed = true
	for tenant, of := range s.tenants {
		for _, w := range of.waiting {
			close(w.ready)
		}
		of.waiting = nil
		if of.starting+of.resting == 0 {
			delete(s.tenants, tenant)
		}
	}
	s.tellIdle()
	return s.idle
}

func (s *Lane) tellIdle() {
	if !s.closed || len(s.tenants) > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// Rest gives the slot back while the attempt goes on: it only waits from now on.
func (s *Slot) Rest() {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	if s.resting || s.ended {
		return
	}
	s.resting = true
	of := s.lane.tenants[s.tenant]
	of.starting--
	of.resting++
	s.lane.free++
	s.lane.grant()
}

// End is called when the attempt is over.
func (s *Slot) End() {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	of := s.lane.tenants[s.tenant]
	if s.resting {
		of.resting--
	} else {
		of.starting--
		s.lane.free++
	}
	s.lane.grant()
	s.lane.forget(s.tenant)
}
