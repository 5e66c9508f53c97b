package held

import (
	"context"
	"sync"
	"time"
)

// pauses remembers how long sandboxes were paused through this process, so that the time limit of a command can stand
// still meanwhile: the clock inside the sandbox does not.
type pauses struct {
	mu   sync.Mutex
	byID map[string]*pauseClock
}

type pauseClock struct {
	total   time.Duration // of pauses that are over
	since   time.Time     // zero while not paused
	resumed chan struct{} // closed when the current pause is over
}

// begin notes that sandbox id is paused from now on.
func (p *pauses) begin(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = make(map[string]*pauseClock)
	}
	c := p.byID[id]
	if c == nil {
		c = &pauseClock{}
		p.byID[id] = c
	}
	if c.since.IsZero() {
		c.since, c.resumed = time.Now(), make(chan struct{})
	}
}

// end notes that sandbox id goes on, if only to be deleted.
func (p *pauses) end(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.byID[id]; c != nil && !c.since.IsZero() {
		c.total += time.Since(c.since)
		c.since = time.Time{}
		close(c.resumed)
	}
}

// forget drops the memory of a sandbox that is gone.
func (p *pauses) forget(id string) {
	p.end(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byID, id)
}

// total is how long sandbox id has been paused up to now.
func (p *pauses) total(id string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byID[id]
	switch {
	case c == nil:
		return 0
	case c.since.IsZero():
		return c.total
	default:
		return c.total + time.Since(c.since)
	}
}

// await waits for the end of a pause that begin told of. It answers false when there is none or ctx ends first.
func (p *pauses) await(ctx context.Context, id string) bool {
	p.mu.Lock()
	c := p.byID[id]
	if c == nil || c.resumed == nil {
		p.mu.Unlock()
		return false
	}
	resumed := c.resumed
	p.mu.Unlock()
	select {
	case <-resumed:
		return true
	case <-ctx.Done():
		return false
	}
}
