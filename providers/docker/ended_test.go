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
