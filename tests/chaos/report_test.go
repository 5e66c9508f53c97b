//go:build chaos

package chaos

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints what has happened.
func (r *run) report(t *trial) {
	faults := map[string]int{}
	for _, f := range t.faults {
		faults[string(f.kind)]++
	}
	r.logf("%d faults in %v: %s", len(t.faults), r.length, counts(faults))
	sent, unknown, refused, tries := 0, 0, map[string]int{}, 0
	t.each(func(o *op) {
		sent++
		tries += max(0, o.tries-1)
		switch {
		case o.unknown:
			unknown++
		case o.refused != "":
			refused[o.refused]++
		}
	})
	r.logf("%d submissions, %d repeated, %d never answered, refused: %s", sent, tries, unknown, counts(refused))
	lines, seen := answered(t.clients)
	r.logf("%d lines typed, of %d the answer was seen; %d schedules, %d builds", lines, seen, len(t.h.schedules), len(t.h.builds))
	reasons := map[string]int{}
	for _, m := range t.h.mortals {
		reasons[m.State+" "+m.Reason]++
	}
	r.logf("%d sandboxes were to end by themselves: %s", len(t.h.mortals), counts(reasons))
	r.outcomes(t)
	again, taken, worst, slowest := 0, 0, "", time.Duration(0)
	for id, j := range t.h.jobs {
		again += max(0, j.Attempt-1)
		for _, e := range t.h.events[id] {
			if e.silent() {
				taken++
			}
		}
		if gap := t.h.gap(id); gap > slowest {
			worst, slowest = id, gap
		}
	}
	r.logf("%d attempts beyond the first, of which %d were taken from workers that had gone silent; the others were given back, most "+
		"without an effect; all jobs ended %v after the last fault; the slowest was taken up again after %v (%s)", again, taken, r.quietIn.Round(100*time.Millisecond),
		slowest.Round(100*time.Millisecond), worst)
}

// outcomes prints jobs by kind and end, and the errors they name.
func (r *run) outcomes(t *trial) {
	states := []string{"succeeded", "failed", "timed_out", "cancelled", "lost", "expired"}
	table, errors, total := map[string]map[string]int{}, map[string]int{}, map[string]int{}
	for _, j := range t.h.jobs {
		if table[j.Kind] == nil {
			table[j.Kind] = map[string]int{}
		}
		table[j.Kind][j.State]++
		total[j.State]++
		if j.Code != "" {
			errors[j.State+" "+j.Code]++
		}
	}
	table["all"] = total
	w := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kind\t"+strings.Join(states, "\t")+"\t")
	for _, kind := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprint(w, kind)
		for _, s := range states {
			fmt.Fprintf(w, "\t%d", table[kind][s])
		}
		fmt.Fprintln(w, "\t")
	}
	_ = w.Flush() // to the screen
	r.logf("errors: %s", counts(errors))
}

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}

// gap is the longest time between a job's going back to the queue and its next start.
func (h *history) gap(id string) time.Duration {
	var longest time.Duration
	var since time.Time
	for _, e := range h.events[id] {
		switch {
		case e.Event == "requeued":
			since = e.At
		case e.Event == "running" && !since.IsZero():
			longest = max(longest, e.At.Sub(since))
		}
	}
	return longest
}
