//go:build attack

package attack

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// attack is one entry of the table.
type attack struct {
	name    string
	finding string // what it did before it was closed
	play    func(*stage)
	// open says why the attack is known to succeed. It is then shown as open, and fails once it no longer succeeds.
	open string
}

// stage is the installation while one attack is played.
type stage struct {
	*rig
	t    *testing.T
	over <-chan time.Time // ticks when the attack has had its time

	mu       sync.Mutex
	said     []string
	breaches map[string]int // what must not be → how often
	order    []string
}

// reached notes what the attack was answered, for the table.
func (s *stage) reached(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// breach notes that the attack has come to something that it must not.
func (s *stage) breach(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaches[what]++; s.breaches[what] == 1 {
		s.order = append(s.order, what)
	}
}

// longest is what one attack may take.
const longest = time.Minute

// maxBreaches are named one by one.
const maxBreaches = 12

func (s *stage) tell() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i, what := range s.order {
		if i == maxBreaches {
			return append(all, fmt.Sprintf("and %d others", len(s.order)-i))
		}
		if n := s.breaches[what]; n > 1 {
			what = fmt.Sprintf("%s (%d times)", what, n)
		}
		all = append(all, what)
	}
	return all
}

// row is what is printed of an attack.
type row struct {
	attack
	reached   string
	breaches  []string
	neighbour latencies
	memory    map[string]int // of each program, in MB
	took      time.Duration
}

// play has the intruder attack while the neighbour works.
func (r *rig) play(t *testing.T, a attack) row {
	s := &stage{rig: r, t: t, breaches: map[string]int{}, over: time.After(longest)}
	r.refresh(t)
	r.intruder.stage.Store(s)
	watch := r.watch(s)
	pulse := r.neighbour.pulse(s)
	begun := time.Now()
	a.play(s)
	took := time.Since(begun)
	out := row{attack: a, took: took, neighbour: pulse.end(), memory: watch.end(), breaches: nil}
	r.intruder.stage.Store(nil)
	r.intruder.tidy(t)
	out.reached, out.breaches = strings.Join(s.said, "; "), s.tell()
	switch {
	case a.open != "" && len(out.breaches) == 0:
		t.Errorf("%s: it is noted as open (%s) and does not succeed any more", a.finding, a.open)
	case a.open != "":
		t.Logf("OPEN: %s (%s):\n\t%s", a.finding, a.open, strings.Join(out.breaches, "\n\t"))
	case len(out.breaches) > 0:
		t.Errorf("%s:\n\t%s", a.finding, strings.Join(out.breaches, "\n\t"))
	}
	return out
}

// table writes the rows as Markdown.
func table(rows []row, idle latencies) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The neighbour alone: %v.\n\n", idle)
	fmt.Fprintln(&b, "| attack | | what it was answered | neighbour: exec p99, ms | submit p99, ms | API, MB | worker, MB | scheduler, MB | s |")
	fmt.Fprintln(&b, "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, r := range rows {
		state := "held"
		switch {
		case r.open != "":
			state = "OPEN"
		case len(r.breaches) > 0:
			state = "BROKEN"
		}
		fmt.Fprintf(&b, "| %s | %s | %.240s | %d (idle %d) | %d (%d) | %d | %d | %d | %.1f |\n", r.name, state, r.reached,
			r.neighbour.exec.Milliseconds(), idle.exec.Milliseconds(), r.neighbour.submit.Milliseconds(), idle.submit.Milliseconds(),
			r.memory["api"], r.memory["worker"], r.memory["scheduler"], r.took.Seconds())
	}
	return b.String()
}
