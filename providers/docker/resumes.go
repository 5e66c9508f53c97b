package docker

import (
	"context"
	"sync"
	"time"
)

const (
	// flicker is for how long after a resume the engine may call a sandbox paused all the same: it hears of its own pauses and
	// resumes from containerd once more, which may be late.
	flicker = 2 * time.Second
	// flickerLook is the time between two looks meanwhile.
	flickerLook = 20 * time.Millisecond
)

// resumes remembers which sandboxes this process has resumed lately.
type resumes struct{ at sync.Map }

func (r *resumes) begin(id string) {
	now := time.Now()
	r.at.Store(id, now)
	time.AfterFunc(flicker, func() { r.at.CompareAndDelete(id, now) })
}

func (r *resumes) forget(id string) { r.at.Delete(id) }

// lately says whether the sandbox was resumed so lately that it may only seem to be paused.
func (r *resumes) lately(id string) bool {
	_, ok := r.at.Load(id)
	return ok
}

// inspect finds the container of a sandbox. One that seems to be paused just after its resume is looked at again.
func (p *Provider) inspect(ctx context.Context, id string) (resource, error) {
	for {
		r, err := p.inspectOnce(ctx, id)
		if err != nil || r.status != statusPaused || !p.resumed.lately(id) {
			return r, err
		}
		select {
		case <-time.After(flickerLook):
		case <-ctx.Done():
			return r, nil
		}
	}
}
