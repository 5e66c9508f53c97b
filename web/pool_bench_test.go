package web_test

import (
	"fmt"
	"testing"
	"time"

	"sandyard/dev/abbench"
	"sandyard/providers/docker/pool"
)

// BenchmarkPool measures creates that find a container waiting, as whole requests, beside a container's start through
// the Engine API. Neither is disturbed by the pool's refill, which both wait for first.
func BenchmarkPool(b *testing.B) {
	pool := pool.Config{Size: 2, Max: 2}
	y := newDockerYard(b, pool)
	for range 10 { // a server's life begins with plans that PostgreSQL makes anew, five times for each statement of a connection
		must(y.createAndDelete())(b)
	}
	b.Run("create from the pool/vs docker run", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 1, Base: 1}, y.whenFull(pool.Size, y.createAndDelete), y.whenFull(pool.Size, y.runAndRemove))
	})
}

// whenFull does the thing when so many containers wait; only the thing's own time counts.
func (y *dockerYard) whenFull(size int, way abbench.Way) abbench.Way {
	return func() (time.Duration, error) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(time.Minute); y.provider.Waiting() < size; <-tick.C {
			if time.Now().After(deadline) {
				return 0, fmt.Errorf("%d containers wait, not %d", y.provider.Waiting(), size)
			}
		}
		return way()
	}
}
