//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// faultKind is what is done to the system, in the words of the reports.
type faultKind string

const (
	killWorker      faultKind = "worker killed"
	stopWorker      faultKind = "worker stopped"
	endWorker       faultKind = "worker asked to end"
	killScheduler   faultKind = "scheduler killed"
	stopScheduler   faultKind = "scheduler stopped"
	killAPI         faultKind = "API killed"
	stopAPI         faultKind = "API stopped"
	flushRedis      faultKind = "Redis flushed"
	restartRedis    faultKind = "Redis restarted empty"
	restartPostgres faultKind = "PostgreSQL restarted"
	crashPostgres   faultKind = "PostgreSQL killed"
	cutWire         faultKind = "connections cut"
	holdWire        faultKind = "connections silent"
	hangServer      faultKind = "server silent"
	killSandbox     faultKind = "sandbox killed outside Sandyard"
	plantOrphan     faultKind = "resource without a sandbox planted"
	restartEngine   faultKind = "engine restarted"
	crashEngine     faultKind = "engine killed"
	emptyEngine     faultKind = "engine restarted with its sandboxes"

	// Of sandboxes that are processes of this machine.
	stopSandbox      faultKind = "sandbox stopped outside Sandyard"
	killAllSandboxes faultKind = "all sandboxes killed outside Sandyard"
)

// fault is one line of the plan.
type fault struct {
	at     time.Duration // after the start
	lasts  time.Duration // until it is made good
	kind   faultKind
	target int    // which of several processes or sandboxes
	server string // at whose end connections break, of one process or of all
}

func (f fault) String() string {
	s := fmt.Sprintf("%6.1fs %s", f.at.Seconds(), f.kind)
	if f.server != "" {
		s += " to " + f.server
	}
	return s + fmt.Sprintf(" (%d) for %.1fs", f.target, f.lasts.Seconds())
}

// How many of each process there are.
const (
	apis       = 2
	workers    = 3
	schedulers = 2
	processes  = apis + workers + schedulers
)

// lease is that of the workers. Stops that outlast it are what a fence is for.
const lease = 4 * time.Second

// newPlan deals the kinds like cards, so that each has its turn before any comes again; what is dearest for the others
// comes once a deck.
func newPlan(seed uint64, length time.Duration, kinds []faultKind, wired []string) []fault {
	rng := rand.New(rand.NewPCG(seed, 0))
	var plan []fault
	var deck []faultKind
	for at := 2 * time.Second; ; at += time.Duration(800+rng.IntN(2400)) * time.Millisecond {
		if at >= length {
			return plan
		}
		if len(deck) == 0 {
			deck = shuffled(rng, kinds)
		}
		f := fault{at: at, kind: deck[0], target: rng.IntN(1000)}
		deck = deck[1:]
		f.lasts = lasting(rng, f.kind)
		if f.kind == cutWire || f.kind == holdWire || f.kind == hangServer {
			f.server = wired[rng.IntN(len(wired))]
		}
		plan = append(plan, f)
	}
}

// inTurns has the faults of a plan come one after the other, each until others have taken over what it hit and are at work
// on it: who was stopped finds his jobs under way elsewhere.
func inTurns(plan []fault, length time.Duration) []fault {
	at := 2 * time.Second
	for i := range plan {
		if at >= length {
			return plan[:i]
		}
		plan[i].at, plan[i].lasts = at, 2*lease+plan[i].lasts/3
		at += plan[i].lasts + lease
	}
	return plan
}

func shuffled(rng *rand.Rand, kinds []faultKind) []faultKind {
	deck := append([]faultKind{}, kinds...)
	rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func lasting(rng *rand.Rand, kind faultKind) time.Duration {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	switch kind {
	case stopWorker:
		return between(lease/4, 3*lease)
	case holdWire, hangServer:
		return between(time.Second, 2*lease)
	case stopScheduler, stopAPI, stopSandbox:
		return between(time.Second, 6*time.Second)
	case restartPostgres, crashPostgres, restartRedis:
		return between(100*time.Millisecond, 3*time.Second)
	default:
		return between(0, 1500*time.Millisecond)
	}
}

// usualKinds is the deck, without the faults of what sandboxes live on.
func usualKinds() []faultKind {
	return []faultKind{
		killWorker, killWorker, killWorker, stopWorker, stopWorker, stopWorker, endWorker, killScheduler, stopScheduler, killAPI, stopAPI,
		flushRedis, restartRedis, restartPostgres, crashPostgres, cutWire, cutWire, holdWire, holdWire, hangServer,
	}
}
