package web_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sandyard/providers/docker/pool"

	"github.com/jackc/pgx/v5"
)

// BenchmarkCrowd asks for 100 sandboxes at once, as whole requests, and beside it for 100 containers like theirs
// through the Engine API. It reports the median and the 95th percentile of what a caller waits for, and fails when not
// every one of them comes about. With -short it is a small crowd.
func BenchmarkCrowd(b *testing.B) {
	crowd := 100
	if testing.Short() {
		crowd = 8
	}
	y := newDockerYard(b, pool.Config{Size: 4, Max: 16})
	conn := must(pgx.Connect(context.Background(), y.dsn))(b)
	must(conn.Exec(context.Background(), "UPDATE tenants SET max_sandboxes = 1000"))(b)
	check(b, conn.Close(context.Background()))
	b.Run(fmt.Sprintf("%d creates at once/vs docker run", crowd), func(b *testing.B) {
		for range b.N {
			ours := atOnce(b, crowd, y.create, y.remove)
			base := atOnce(b, crowd, y.start, y.drop)
			for who, took := range map[string][]time.Duration{"ours": ours, "base": base} {
				b.ReportMetric(milli(took[crowd/2]), who+"-p50-ms")
				b.ReportMetric(milli(took[crowd*95/100]), who+"-p50-ms_p95")
				b.ReportMetric(100, who+"-p50-%_done") // else it has failed
			}
		}
		b.ReportMetric(0, "ns/op")
	})
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// atOnce makes n things at the same time and returns how long each took, sorted. Afterwards it removes them, a few at a
// time.
func atOnce(b *testing.B, n int, makeOne func() (string, error), removeOne func(string) error) []time.Duration {
	b.Helper()
	took, ids, failed := make([]time.Duration, n), make([]string, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			began := time.Now()
			ids[i], failed[i] = makeOne()
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	ended := sync.WaitGroup{}
	slots := make(chan struct{}, 4)
	removed := make([]error, n)
	for i, id := range ids {
		slots <- struct{}{}
		ended.Go(func() {
			if id != "" {
				removed[i] = removeOne(id)
			}
			<-slots
		})
	}
	ended.Wait()
	if err := errors.Join(append(failed, removed...)...); err != nil {
		b.Fatal(fmt.Errorf("of %d at once: %w", n, err))
	}
	slices.Sort(took)
	return took
}
