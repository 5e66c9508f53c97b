package jobs

import (
	"context"
	"sync"
)

// turns lets what has the same name be done one after the other, in any order.
type turns struct {
	mu  sync.Mutex
	now map[string]*turn
}

type turn struct {
	taken chan struct{}
	users int
}

// take waits for the name's turn until ctx ends. The function it returns gives it back.
func (s *turns) take(ctx context.Context, name string) (giveBack func(), err error) {
	t := s.join(name)
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; s.leave(name, t) }, nil
	case <-ctx.Done():
		s.leave(name, t)
		return nil, context.Cause(ctx)
	}
}

// try takes the name's turn where nobody has it, and does without it where somebody has.
func (s *turns) try(name string) (giveBack func()) {
	t := s.join(name)
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; s.leave(name, t) }
	default:
		s.leave(name, t)
		return func() {}
	}
}

func (s *turns) join(name string) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.now[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		if s.now == nil {
			s.now = map[string]*turn{}
		}
		s.now[name] = t
	}
	t.users++
	return t
}

func (s *turns) leave(name string, t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(s.now, name)
	}
}
