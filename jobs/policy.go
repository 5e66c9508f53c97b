package jobs

import (
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
