package jobs

import (
	"context"
	"time"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// retryPause is the wait before the next try of something: it doubles from 50 ms to a second. The zero value is ready.
type retryPause struct{ last time.Duration }

// next returns the next pause.
func (p *retryPause) next() time.Duration {
	p.last = min(max(2*p.last, firstPause), longestPause)
	return p.last
}

// wait pauses, and returns false when ctx ended first.
func (p *retryPause) wait(ctx context.Context) bool {
	t := time.NewTimer(p.next())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
