// Package abbench compares two ways of doing the same thing, ours and a baseline, in benchmarks.
//
// The two take turns all the time, so that a machine that is busy with other things slows both down alike: their ratio
// holds where the figures do not. One iteration of a benchmark is a whole comparison; run with -benchtime 1x.
//
// Figures are reported as who-statistic-unit, such as ours-p50-ms and base-p99-ms, under a benchmark whose name ends
// with "vs" and the baseline's. Command tests/benchtable makes a table of them.
package abbench

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Way does the thing once and says how long the part took that counts.
type Way func() (time.Duration, error)

// Timed is a Way of which everything counts.
func Timed(f func() error) Way {
	return func() (time.Duration, error) {
		began := time.Now()
		err := f()
		return time.Since(began), err
	}
}

// Turns says how often each of the two is done: in every one of Rounds, Ours times and then Base times.
type Turns struct{ Rounds, Ours, Base int }

// Latency reports p50 and p99 in milliseconds of what one caller waits for.
func Latency(b *testing.B, t Turns, ours, base Way) {
	b.Helper()
	var took [2][]time.Duration
	for range b.N {
		repeat(b, 2, ours, nil) // connections and caches
		repeat(b, 1, base, nil)
		for range t.Rounds {
			repeat(b, t.Ours, ours, &took[0])
			repeat(b, t.Base, base, &took[1])
		}
	}
	reportMS(b, took)
}

func repeat(b *testing.B, n int, way Way, took *[]time.Duration) {
	b.Helper()
	for range n {
		d, err := way()
		if err != nil {
			b.Fatal(err)
		}
		if took != nil {
			*took = append(*took, d)
		}
	}
}

// Rate reports the median rate of the rounds that ours and base make in turn; unit is what each round returns the
// number of, per second.
func Rate(b *testing.B, rounds int, unit string, ours, base func() (int, error)) {
	b.Helper()
	var rates [2][]float64
	for range b.N {
		for range rounds {
			for who, round := range []func() (int, error){ours, base} {
				began := time.Now()
				n, err := round()
				if err != nil {
					b.Fatal(err)
				}
				rates[who] = append(rates[who], float64(n)/time.Since(began).Seconds())
			}
		}
	}
	for who, r := range rates {
		slices.Sort(r)
		b.ReportMetric(r[len(r)/2], names()[who]+"-p50-"+unit)
	}
	hideTime(b)
}

// Load is how many callers keep doing the thing, each as soon as it is done, and for how long at a turn.
type Load struct {
	Callers, Rounds int
	Turn            time.Duration
}

// Run reports how often ours and base get done per second, in the given unit, and p50 and p99 of what each caller
// waits for. Both are called from many goroutines at once, with a number that does not come twice.
func (l Load) Run(b *testing.B, unit string, ours, base func(i int) error) {
	b.Helper()
	var took [2][]time.Duration
	var next atomic.Int64
	turn := func(who int, way func(int) error) func() (int, error) {
		return func() (int, error) {
			all, err := l.turn(&next, way)
			took[who] = append(took[who], all...)
			return len(all), err
		}
	}
	for _, way := range []func(int) error{ours, base} {
		if err := way(int(next.Add(1))); err != nil {
			b.Fatal(err)
		}
	}
	Rate(b, l.Rounds, unit, turn(0, ours), turn(1, base))
	reportMS(b, took)
}

func (l Load) turn(next *atomic.Int64, way func(int) error) (all []time.Duration, err error) {
	var callers sync.WaitGroup
	var mu sync.Mutex
	deadline := time.Now().Add(l.Turn)
	for range l.Callers {
		callers.Go(func() {
			took, failed := call(deadline, next, way)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if failed != nil {
				err = failed
			}
		})
	}
	callers.Wait()
	return all, err
}

func call(deadline time.Time, next *atomic.Int64, way func(int) error) (took []time.Duration, err error) {
	for began := time.Now(); began.Before(deadline); {
		if err := way(int(next.Add(1))); err != nil {
			return took, err
		}
		now := time.Now()
		took = append(took, now.Sub(began))
		began = now
	}
	return took, nil
}

func reportMS(b *testing.B, took [2][]time.Duration) {
	for who, all := range took {
		slices.Sort(all)
		for _, p := range []struct {
			name string
			rank int
		}{{"p50", len(all) / 2}, {"p99", (len(all)*99+99)/100 - 1}} {
			b.ReportMetric(float64(all[p.rank].Microseconds())/1000, names()[who]+"-"+p.name+"-ms")
		}
	}
	hideTime(b)
}

func names() [2]string { return [2]string{"ours", "base"} }

// hideTime drops the time of a whole comparison, which says nothing.
func hideTime(b *testing.B) { b.ReportMetric(0, "ns/op") }
