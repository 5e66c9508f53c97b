package docker

import (
	"context"
	"sync"
)

// locks lets one change of a sandbox happen at a time in this process. Between processes the engine's unique names
// decide.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	token chan struct{}
	users int
}

// acquire waits for the lock of id and returns its release.
func (l *locks) acquire(ctx context.Context, id string) (func(), error) {
	k := l.join(id)
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; l.leave(id, k) }, nil
	case <-ctx.Done():
		l.leave(id, k)
		return nil, translate(ctx.Err(), "wait for another change of the sandbox")
	}
}

func (l *locks) join(id string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]*lock)
	}
	k := l.held[id]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.held[id] = k
	}
	k.users++
	return k
}

func (l *locks) leave(id string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, id)
	}
}
