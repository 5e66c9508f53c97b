package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// maxFaults is how often one is tried that fails although its provider is there and has room: about three seconds.
const maxFaults = 6

// attemptsFor is how many attempts a job may have on such an error.
func attemptsFor(j models.Job, err *providers.Error) int {
	switch {
	case j.Kind == models.KindDelete,
		err.Class == providers.Unavailable,
		err.Class == providers.Capacity,
		err.Class == providers.DiskFull:
		return j.MaxAttempts
	}
	return min(j.MaxAttempts, maxFaults)
}

// backoff is how long to wait before attempt n+1: 100 ms doubling to 30 s, spread by a quarter.
func backoff(n int) time.Duration {
	d := min(100*time.Millisecond<<min(n-1, 10), 30*time.Second)
	return d - d/8 + rand.N(d/4)
}

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
