package jobs

import (
	"sync"
)

// endings lets the jobs of one sandbox be finished one at a time. They need the sandbox's row one after the other
// anyway; many that wait for it in the database would take its connections from all others, heartbeats included.
type endings struct {
	mu  sync.Mutex
	now map[string]*ending // by sandbox
}

type ending struct {
	turn  sync.Mutex
	users int
}

// take waits for the sandbox's turn. The function it returns gives it back.
func (s *endings) take(sandbox string) (giveBack func()) {
	s.mu.Lock()
	e := s.now[sandbox]
	if e == nil {
		e = &ending{}
		if s.now == nil {
			s.now = map[string]*ending{}
		}
		s.now[sandbox] = e
	}
	e.users++
	s.mu.Unlock()
	e.turn.Lock()
	return func() {
		e.turn.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(s.now, sandbox)
		}
	}
}
