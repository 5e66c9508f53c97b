package faults_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

//nolint:gochecknoglobals // flags of the test binary
var (
	faultSeed = flag.Uint64("faults.seed", 0, "choose the faults of a sample; 0 = by the clock")
	faultHang = flag.Bool("faults.hang", false, "also connections that fall silent, which takes a quarter of a minute each")
	faultAll  = flag.Bool("faults.all", false, "every call of every kind instead of a sample")
	faultOnly = flag.String("faults.only", "", "the one to play, as a failure names it, such as exec/postgres/7/after, or all that begin so, such as exec or exec/redis")
)

const (
	// sampled is how many scripts a sample plays, each without a fault and with one.
	sampled = 14
	// tries is how often a fault is played until it strikes a call, for no two runs make quite the same calls.
	tries = 3
	// mayMiss is the share of a script's faults that may strike nothing all the same, in percent, and fewMiss how many of a
	// script that has few.
	mayMiss, fewMiss = 5, 2
	// samples is how often a script is played without a fault, to see what it calls. What not all of them have called is
	// none of the script's.
	samples = 4
)

// TestEveryCallMayFail lets one call after the other of a run of each kind go wrong, in each of the ways of its layer, and
// wants the system to recover by itself. A sample of the calls is drawn by a seed; make faults plays all of them.
func TestEveryCallMayFail(t *testing.T) {
	testenv.Long(t, "the whole matrix of faults takes minutes")
	t.Parallel()
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1e6)
	}
	t.Logf("seed %d; this sample again by: make faults SEED=%d", seed, seed)
	todo := slices.DeleteFunc(scripts(), func(s script) bool {
		return *faultOnly != "" && !strings.HasPrefix(*faultOnly+"/", s.name+"/")
	})
	if len(todo) == 0 {
		t.Fatalf("no script is called %q", *faultOnly)
	}
	rng := rand.New(rand.NewPCG(seed, seed))
	slices.SortFunc(todo, func(a, b script) int { return strings.Compare(a.name, b.name) })
	lanes := 2 // a rig each
	if *faultAll {
		lanes = len(todo)
	} else {
		rng.Shuffle(len(todo), func(i, k int) { todo[i], todo[k] = todo[k], todo[i] })
		todo = todo[:min(len(todo), sampled)]
	}
	var all tally
	t.Cleanup(func() { t.Logf("of all: %v", &all) })
	for i := range lanes {
		draw := rand.New(rand.NewPCG(seed, rng.Uint64()))
		t.Run(fmt.Sprint("lane ", i), func(t *testing.T) {
			t.Parallel()
			r := newFaultRig(t)
			for k := i; k < len(todo); k += lanes {
				p := &plays{r: r, s: todo[k]}
				p.playAll(draw)
				t.Logf("%s: %v", p.s.name, &p.seen)
				all.add(&p.seen)
			}
		})
	}
}

// tally is what became of the faults that were played.
type tally struct {
	mu     sync.Mutex
	struck int
	missed []string
}

func (a *tally) add(b *tally) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.struck += b.struck
	a.missed = append(a.missed, b.missed...)
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("%d faults struck a call", a.struck)
	if len(a.missed) > 0 {
		text += fmt.Sprintf(", %d did not: %s", len(a.missed), strings.Join(a.missed, ", "))
	}
	return text
}

// tooFew says whether so many faults struck nothing that calls of the script were hardly tried.
func (a *tally) tooFew() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	missed := len(a.missed)
	return a.struck == 0 && missed > 0 || missed > fewMiss && 100*missed > mayMiss*(a.struck+missed)
}

// plays are the runs of one script.
type plays struct {
	r    *faultRig
	s    script
	n    int
	seen tally
}

// playAll plays the script without a fault, which counts its calls, and then with each of them going wrong, or with one.
func (p *plays) playAll(draw *rand.Rand) {
	calls, _ := p.play(fault{})
	if !*faultAll && *faultOnly == "" {
		p.playOne(chosen(calls, ""), draw)
		return
	}
	for range samples - 1 {
		again, _ := p.play(fault{})
		for l, n := range again {
			calls[l] = min(calls[l], n)
		}
	}
	faults := chosen(calls, p.s.name)
	for _, f := range faults {
		p.strike(f, tries)
	}
	if p.seen.tooFew() {
		p.r.T.Errorf("%s: more than %d %% of the faults struck nothing: %v", p.s.name, mayMiss, &p.seen)
	}
}

// playOne plays faults by chance until one strikes.
func (p *plays) playOne(faults []fault, draw *rand.Rand) {
	for range 2 * tries {
		if p.strike(faults[draw.IntN(len(faults))], 1) {
			return
		}
	}
	p.r.T.Errorf("%s: no fault struck a call: %v", p.s.name, &p.seen)
}

// strike plays a fault until it has struck a call, and says whether it has.
func (p *plays) strike(f fault, tries int) bool {
	for range tries {
		if _, hit := p.play(f); hit != "" {
			p.seen.struck++
			return true
		}
	}
	p.seen.missed = append(p.seen.missed, fmt.Sprintf("%s/%v", p.s.name, f))
	return false
}

// play plays the script once more.
func (p *plays) play(f fault) (calls map[layer]int, hit string) {
	p.n++
	began, whole := time.Now(), false
	defer func() {
		if !whole {
			p.r.T.Logf("broken off; again by: make faults ONLY='%s/%v'", p.s.name, f)
		}
	}()
	calls, hit = p.r.play(p.s, f, fmt.Sprintf("%s-%d", p.s.name, p.n))
	if p.r.T.Failed() {
		p.r.T.Fatalf("the call was %.200q; again by: make faults ONLY='%s/%v'", hit, p.s.name, f)
	}
	if whole = true; testing.Verbose() {
		p.r.T.Logf("%s/%v: %.1fs, %.80q", p.s.name, f, time.Since(began).Seconds(), hit)
	}
	return calls, hit
}

// chosen are the faults to play of a run with so many calls: all, or those of the script that are asked for.
func chosen(calls map[layer]int, name string) (faults []fault) {
	for _, l := range layers() {
		for k := 1; k <= calls[l]; k++ {
			faults = append(faults, faultsAt(l, k)...)
		}
	}
	if only := *faultOnly; only != "" {
		faults = slices.DeleteFunc(faults, func(f fault) bool {
			return !strings.HasPrefix(fmt.Sprintf("%s/%v/", name, f), only+"/")
		})
	}
	return faults
}

// TestAFaultBeyondARunIsTold: it holds nothing up, and does not count as one that the system has borne.
func TestAFaultBeyondARunIsTold(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	p := &plays{r: newFaultRig(t), s: script{name: "beyond", ready: ready, act: args(openPort)}}
	for _, l := range layers() {
		p.strike(faultsAt(l, 1)[0], tries)
		p.strike(faultsAt(l, 1000)[0], 1)
	}
	if p.seen.struck != 4 || len(p.seen.missed) != 4 || !p.seen.tooFew() {
		t.Errorf("of four faults that strike and four that cannot: %v", &p.seen)
	}
}
