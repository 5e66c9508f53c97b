package execs

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Chunk is a piece of output.
type Chunk struct {
	Stream Stream
	Data   []byte
}

// Stream names one of a command's outputs.
type Stream int

// The streams; a terminal has only the first.
const (
	Stdout Stream = iota
	Stderr
	Report // descriptor 3, of a command that asked for it
	streams
)

// listenerBuffer is how many chunks a listener may lag behind before the command has to wait for it.
const listenerBuffer = 16

// audience passes the output of a plain command to who listens. A slow listener slows the command down; without
// listeners the output is dropped.
type audience struct {
	over chan struct{} // closed when nothing more comes

	mu        sync.Mutex
	listeners map[*listener]struct{}
}

type listener struct {
	chunks chan Chunk
	left   chan struct{}
}

func newAudience() *audience {
	return &audience{over: make(chan struct{}), listeners: map[*listener]struct{}{}}
}

func (a *audience) join() *listener {
	l := &listener{chunks: make(chan Chunk, listenerBuffer), left: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners[l] = struct{}{}
	return l
}

func (a *audience) leave(l *listener) {
	close(l.left)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.listeners, l)
}

func (a *audience) send(c Chunk) {
	for _, l := range a.all() {
		select {
		case l.chunks <- c:
		case <-l.left:
		case <-a.over:
		}
	}
}

func (a *audience) all() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.listeners))
}

// listen emits what arrives until the end, an error of emit or the end of ctx.
func (a *audience) listen(ctx context.Context, l *listener, emit func(Chunk) error) error {
	defer a.leave(l)
	for {
		select {
		case c := <-l.chunks:
			if err := emit(c); err != nil {
				return err
			}
		case <-a.over:
			return l.drain(emit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain emits what was sent before the end.
func (l *listener) drain(emit func(Chunk) error) error {
	for {
		select {
		case c := <-l.chunks:
			if err := emit(c); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}
