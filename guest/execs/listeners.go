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

const (
	// listenerBuffer is how many chunks a listener may lag behind before the command has to wait for it.
	listenerBuffer = 16
	// maxLate bounds what is kept of an ended command's output for those who have yet to read it, in bytes: of two
	// streams all that their pipes held, and what had been read of each.
	maxLate = 2 * (maxRest + readSize)
	// maxLatecomers bounds the commands of which that is kept at one time.
	maxLatecomers = 16
)

// audience passes the output of a plain command to who listens. A slow listener slows the command down while it runs;
// what is left of the output at its end waits for the listeners. Without listeners the output is dropped.
type audience struct {
	hurry chan struct{} // closed when no listener is waited for any more
	over  chan struct{} // closed when nothing more comes

	mu        sync.Mutex
	listeners map[*listener]struct{}
	keep      int    // bytes that wait for each listener once it is hurried
	giveBack  func() // the command's place among the latecomers
}

type listener struct {
	chunks chan Chunk
	left   chan struct{}
	late   []Chunk // behind those in chunks
	size   int     // of late, in bytes
}

func newAudience() *audience {
	return &audience{hurry: make(chan struct{}), over: make(chan struct{}), listeners: map[*listener]struct{}{}}
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
	a.vacate()
}

// vacate gives the place back when nobody is left for whom something is kept. The caller holds the lock.
func (a *audience) vacate() {
	if a.giveBack != nil && len(a.listeners) == 0 {
		a.giveBack()
		a.giveBack = nil
	}
}

func (a *audience) send(c Chunk) {
	for _, l := range a.all() {
		if a.hurried() {
			a.defers(l, c)
			continue
		}
		select {
		case l.chunks <- c:
		case <-l.left:
		case <-a.hurry:
			a.defers(l, c)
		}
	}
}

func (a *audience) all() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.listeners))
}

func (a *audience) hurried() bool {
	select {
	case <-a.hurry:
		return true
	default:
		return false
	}
}

// defers keeps a chunk for a listener to read at its own pace. Chunks share their bytes among the listeners.
func (a *audience) defers(l *listener, c Chunk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.size+len(c.Data) <= a.keep {
		l.late, l.size = append(l.late, c), l.size+len(c.Data)
	}
}

// hasten ends the waiting for listeners, of whom each finds up to keep bytes more. When the last one has left it calls
// giveBack.
func (a *audience) hasten(keep int, giveBack func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep, a.giveBack = keep, giveBack
	a.vacate()
	close(a.hurry)
}

// listen emits what arrives until the end, an error of emit or the end of ctx.
func (a *audience) listen(ctx context.Context, l *listener, emit func(Chunk) error) error {
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

// drain emits what was sent before the end. Nothing is added any more.
func (l *listener) drain(emit func(Chunk) error) error {
	for {
		select {
		case c := <-l.chunks:
			if err := emit(c); err != nil {
				return err
			}
			continue
		default:
		}
		for _, c := range l.late {
			if err := emit(c); err != nil {
				return err
			}
		}
		return nil
	}
}
