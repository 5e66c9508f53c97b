// Package keymutex is a mutex for each of any number of keys, such as the ids of sandboxes.
package keymutex

import (
	"context"
	"sync"
)

// Mutex lets each key have one holder at a time. Those who wait get it in the order of their coming. It keeps nothing
// of a key that nobody holds or waits for. The zero value is ready; its methods may be called concurrently.
type Mutex struct {
	mu   sync.Mutex
	keys map[string]*key
}

type key struct {
	held  chan struct{} // has an element while somebody holds the key
	users int           // holders and waiters
}

// Lock waits for the key until ctx ends, whose cause is then the error. Unlock is to be called once.
func (m *Mutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	k := m.join(name)
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; m.leave(name, k) }, nil
	case <-ctx.Done():
		m.leave(name, k)
		return nil, context.Cause(ctx)
	}
}

// TryLock takes the key if it is free. Unlock may be called also if it was not, and then does nothing.
func (m *Mutex) TryLock(name string) (unlock func(), locked bool) {
	k := m.join(name)
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; m.leave(name, k) }, true
	default:
		m.leave(name, k)
		return func() {}, false
	}
}

func (m *Mutex) join(name string) *key {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[name]
	if k == nil {
		k = &key{held: make(chan struct{}, 1)}
		if m.keys == nil {
			m.keys = map[string]*key{}
		}
		m.keys[name] = k
	}
	k.users++
	return k
}

func (m *Mutex) leave(name string, k *key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(m.keys, name)
	}
}
