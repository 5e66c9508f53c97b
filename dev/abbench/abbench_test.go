package abbench_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/dev/abbench"
)

// TestMain makes every benchmark here one iteration.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.benchtime", "1x"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// metrics runs f as a benchmark and says what it reported.
func metrics(t *testing.T, f func(b *testing.B)) map[string]float64 {
	t.Helper()
	res := testing.Benchmark(f)
	if res.N == 0 {
		t.Fatal("the benchmark failed")
	}
	return res.Extra
}

func TestLatencyTakesTurnsAndReportsPercentiles(t *testing.T) {
	var order strings.Builder
	way := func(who string, ms ...int) abbench.Way {
		n := 0
		return func() (time.Duration, error) {
			order.WriteString(who)
			n++
			return time.Duration(ms[min(n, len(ms))-1]) * time.Millisecond, nil
		}
	}
	got := metrics(t, func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 3, Ours: 2, Base: 1}, way("o", 1000, 1000, 1, 2, 3, 4, 5, 6), way("b", 1000, 7))
	})
	if order.String() != "oob"+"oob"+"oob"+"oob" {
		t.Errorf("called in the order %s", &order)
	}
	for name, want := range map[string]float64{"ours-p50-ms": 4, "ours-p99-ms": 6, "base-p50-ms": 7, "base-p99-ms": 7} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestLoadKeepsEveryCallerBusy(t *testing.T) {
	var at, most, base atomic.Int64
	seen := make(chan int, 1<<20)
	got := metrics(t, func(b *testing.B) {
		load := abbench.Load{Callers: 4, Rounds: 3, Turn: 20 * time.Millisecond}
		load.Run(b, "things/s", func(i int) error {
			for now := at.Add(1); now > most.Load(); {
				most.Store(now)
			}
			defer at.Add(-1)
			seen <- i
			<-time.After(time.Millisecond)
			return nil
		}, func(int) error {
			base.Add(1)
			<-time.After(40 * time.Millisecond) // so much that no load of the machine hides it
			return nil
		})
	})
	if most.Load() < 2 || most.Load() > 4 || base.Load() == 0 {
		t.Errorf("%d callers at once, %d calls of the baseline", most.Load(), base.Load())
	}
	if ratio := got["ours-p50-things/s"] / got["base-p50-things/s"]; ratio < 1.5 {
		t.Errorf("forty times as quick is reported as %v: %v", ratio, got)
	}
	if got["ours-p50-ms"] < 1 || got["base-p50-ms"] < 40 || got["ours-p99-ms"] < got["ours-p50-ms"] {
		t.Errorf("latencies: %v", got)
	}
	close(seen)
	numbers := map[int]bool{}
	for i := range seen {
		if numbers[i] {
			t.Errorf("number %d came twice", i)
		}
		numbers[i] = true
	}
}

func TestAFailureEndsTheBenchmark(t *testing.T) {
	broken := errors.New("broken")
	fails := func(int) error { return broken }
	works := func(int) error { return nil }
	for i, f := range []func(b *testing.B){
		func(b *testing.B) {
			abbench.Latency(b, abbench.Turns{Rounds: 1, Ours: 1, Base: 1}, abbench.Timed(func() error { return nil }),
				abbench.Timed(func() error { return broken }))
		},
		func(b *testing.B) { abbench.Load{Callers: 1, Rounds: 1, Turn: 1}.Run(b, "x/s", fails, works) },
		func(b *testing.B) {
			abbench.Rate(b, 1, "x/s", func() (int, error) { return 1, nil }, func() (int, error) { return 0, broken })
		},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if res := testing.Benchmark(f); res.N != 0 {
				t.Errorf("it went on: %v", res)
			}
		})
	}
}
