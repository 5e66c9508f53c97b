package docker

import (
	"testing"
	"time"

	"sandyard/providers"
)

// TestWhyOfAKill: a busy engine tells that memory has run out when the container has ended, and does not note it there.
func TestWhyOfAKill(t *testing.T) {
	t.Parallel()
	end := time.Now()
	for name, c := range map[string]struct {
		noted             bool
		toldBefore, after time.Duration // 0 = it did not tell; it told that long before or after the end
		killed            bool
		want              string
	}{
		"told and noted":            {noted: true, toldBefore: time.Millisecond, want: providers.EndedByMemory},
		"told too late to be noted": {after: 100 * time.Millisecond, want: providers.EndedByMemory},
		"told before, not noted":    {toldBefore: time.Millisecond, want: providers.EndedByMemory},
		"noted, no longer told":     {noted: true, want: providers.EndedByMemory},
		"of a command, long before": {noted: true, toldBefore: time.Minute, want: providers.EndedByKill},
		"of a command, and killed":  {noted: true, killed: true, want: providers.EndedByKill},
		"neither":                   {want: providers.EndedByKill},
	} {
		m := memories{started: map[string]time.Time{"c": end}, died: map[string]time.Time{"c": end}, ooms: map[string]time.Time{}, killed: map[string]time.Time{}}
		if c.toldBefore+c.after != 0 {
			m.ooms["c"] = end.Add(c.after - c.toldBefore)
		}
		if c.killed {
			m.killed["c"] = end
		}
		if got := m.why(ending{ref: "c", code: codeKilled, oom: c.noted, at: end}); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAnEndThatTheEngineHasNotToldYet: a container that has just ended is asked for again, for a while, before its end
// is taken for one that the engine did not see.
func TestAnEndThatTheEngineHasNotToldYet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	killed := ending{ref: "c", code: codeKilled, at: now}
	for name, c := range map[string]struct {
		of    ending
		asked time.Duration // after the end
		died  bool
		early bool
	}{
		"at once":               {killed, 0, false, true},
		"by an earlier clock":   {killed, -time.Second, false, true},
		"a second later":        {killed, time.Second, false, true},
		"much later":            {killed, 3 * time.Second, false, false},
		"with another clock":    {killed, -time.Hour, false, false},
		"told":                  {killed, 0, true, false},
		"removed":               {ending{ref: "c", code: codeKilled, at: now, removed: true}, 0, false, false},
		"by itself":             {ending{ref: "c", code: 1, at: now}, 0, false, false},
		"of which none is told": {ending{ref: "c", code: codeUnknown, at: now}, 0, false, false},
	} {
		m := memories{until: now.Add(c.asked), died: map[string]time.Time{}}
		if c.died {
			m.died["c"] = now
		}
		if got := m.early(c.of); got != c.early {
			t.Errorf("%s: early %v", name, got)
		}
	}
}
