//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/providers/remote"
)

// The checks that only the soak of two providers has.
const (
	checkOthers = "jobs of the other provider are not affected"
	checkNoLoss = "no sandbox is lost that its vendor has"
)

const (
	leastServed = 5 // jobs of the other provider that begin and end within each phase
	leastHits   = 5 // requests that met each condition
)

// judge makes all checks that need no system any more.
func (r *vendored) judge(t *trial) {
	t.endedOnce()
	t.accepted()
	t.fenced()
	t.results()
	t.effects()
	t.order()
	t.files()
	t.explained()
	t.enough()
	r.kept(t)
	r.unaffected(t)
	r.met(t)
}

// kept refuses sandboxes that were given up: the vendor has never lost one.
func (r *vendored) kept(t *trial) {
	for _, b := range t.boxes() {
		if t.h.boxes[b.id] == "lost" {
			t.find(checkNoLoss, "sandbox %s", b.id)
		}
	}
}

// unaffected looks at the jobs of the provider whose vendor is well: all succeed, none goes back to the queue but from the
// worker that was killed, and some begin and end while the other vendor is not well.
func (r *vendored) unaffected(t *trial) {
	served := make([]int, len(r.weather.spells))
	for _, c := range t.clients {
		if c.at != onLocal {
			continue
		}
		for _, o := range c.ops {
			j, ok := t.h.jobs[t.jobOf(o)]
			if !ok {
				continue
			}
			if j.State != "succeeded" {
				t.find(checkOthers, "%s", t.h.tell(j.ID))
			}
			for _, e := range t.h.events[j.ID] {
				if e.Event == "requeued" && !e.silent() {
					t.find(checkOthers, "it went back to the queue: %s", t.h.tell(j.ID))
				}
			}
			for i, s := range r.weather.spells {
				if j.FinishedAt != nil && j.QueuedAt.After(s.began) && j.FinishedAt.Before(s.ended) {
					served[i]++
				}
			}
		}
	}
	for i, s := range r.weather.spells {
		if served[i] < leastServed {
			t.find(checkOthers, "only %d jobs of it began and ended while the vendor of the other one %s", served[i], s.is)
		}
	}
}

// met refuses a run in which a condition met too little to prove anything.
func (r *vendored) met(t *trial) {
	r.weather.mu.Lock()
	defer r.weather.mu.Unlock()
	for is := range chances() {
		n := 0
		for f, times := range r.weather.hits[is] {
			if f != passes {
				n += times
			}
		}
		if n < leastHits {
			t.find(checkTried, "while the vendor %s that met only %d requests", is, n)
		}
	}
}

// there lists the sandboxes that the vendor has, by our names of them, with their states. Of several with one name there
// is an error.
func (r *vendored) there(ctx context.Context) (map[string]string, error) {
	conn, err := pgx.Connect(ctx, r.vendor.postgres.DSN())
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	list, err := rows[struct{ Name, Value string }](ctx, conn, `SELECT coalesce(labels->>'`+remote.LabelSandbox+`', id) AS name, state AS value
		FROM sandboxes WHERE ended_at IS NULL`)
	all := map[string]string{}
	for _, one := range list {
		if all[one.Name] != "" {
			err = errors.Join(err, fmt.Errorf("the vendor has %s twice", one.Name))
		}
		all[one.Name] = one.Value
	}
	return all, err
}

// agreeAll waits until the vendor and this machine have exactly what the rows say.
func (r *vendored) agreeAll(ctx context.Context, t *trial) {
	err := eventually(ctx, settling, "rows, vendor and resources agree", func() (bool, string) {
		h, err := readHistory(ctx, r.sys.postgres.DSN())
		here, err2 := r.sys.host.sandboxes()
		there, err3 := r.there(ctx)
		if err := errors.Join(err, err2, err3); err != nil {
			return false, err.Error()
		}
		maps.Copy(here, there)
		d := disagreements(h.boxes, here)
		return len(d) == 0, strings.Join(d, "; ")
	})
	if err != nil {
		t.find(checkRows, "%v", err)
	}
}

// tidyAll deletes every sandbox, ends the processes of both installations and looks for what is left.
func (r *vendored) tidyAll(ctx context.Context, t *trial) {
	if err := r.removeAll(ctx, t); err != nil {
		t.find(checkLeft, "all sandboxes are deleted: %v\n%s", err, r.stuck(ctx))
		return
	}
	err := eventually(ctx, settling, "the vendor has no sandbox", func() (bool, string) {
		left, err := r.there(ctx)
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	if err != nil {
		t.find(checkLeft, "%v", err)
	}
	theirs := &run{t: r.t, sys: r.vendor, bin: r.bin, began: r.began}
	if err := errors.Join(r.vendor.stopProcesses(), theirs.clearedHost(ctx)); err != nil {
		t.find(checkLeft, "at the vendor: %v", err)
	}
	r.tidy(ctx, t)
}

// stuck tells the jobs of the sandboxes that have not ended.
func (r *vendored) stuck(ctx context.Context) string {
	h, err := readHistory(ctx, r.sys.postgres.DSN())
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, id := range slices.Sorted(maps.Keys(h.jobs)) {
		if state := h.boxes[h.jobs[id].SandboxID]; state == "creating" || state == "deleting" {
			all = append(all, h.tell(id))
		}
	}
	return strings.Join(all, "\n    ")
}

// served are the jobs of one provider that were submitted in one condition.
type served struct {
	ends map[string]int
	took []time.Duration // of those that succeeded
}

// table prints the jobs of each provider by the condition in which they were submitted. What comes after the last phase is
// left out.
func (r *vendored) table(t *trial) {
	all := map[string]map[condition]*served{onLocal: {}, r.at: {}}
	codes := map[string]int{}
	for _, c := range t.clients {
		for _, o := range c.ops {
			j, ok := t.h.jobs[t.jobOf(o)]
			if !ok || j.FinishedAt == nil {
				continue
			}
			for _, s := range r.weather.spells {
				if j.QueuedAt.After(s.began) && j.QueuedAt.Before(s.ended) {
					of := all[c.at][s.is]
					if of == nil {
						of = &served{ends: map[string]int{}}
						all[c.at][s.is] = of
					}
					of.ends[j.State]++
					if j.State == "succeeded" {
						of.took = append(of.took, j.FinishedAt.Sub(j.QueuedAt))
					}
				}
			}
			if j.Code != "" {
				codes[c.at+" "+j.Kind+" "+j.State+" "+j.Code]++
			}
		}
	}
	w := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "jobs of\tthe vendor\tjobs\tp50\tp99\tends\trequests to the vendor")
	for _, at := range []string{onLocal, r.at} {
		for _, is := range []condition{fair, drops, hangs, limits, garbled, away} {
			of := all[at][is]
			if of == nil {
				of = &served{}
			}
			jobs, met := 0, map[string]int{}
			for _, n := range of.ends {
				jobs += n
			}
			if at == r.at {
				for f, n := range r.weather.hits[is] {
					met[string(f)] = n
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", at, is, jobs, percentile(of.took, 50), percentile(of.took, 99), counts(of.ends), counts(met))
		}
	}
	_ = w.Flush() // to the screen
	r.logf("errors: %s", counts(codes))
}

// percentile is a percentile, for people.
func percentile(took []time.Duration, percent int) string {
	if len(took) == 0 {
		return ""
	}
	slices.Sort(took)
	return took[(len(took)*percent+99)/100-1].Round(100 * time.Microsecond).String()
}
