//go:build chaos

package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// series are the values of one figure, at equal distances in time.
type series struct {
	unit   string
	values []float64
	// A figure may grow by the larger of the two over the second half: what the measure is sure to vary by, and a part of
	// itself. A figure with neither is shown and not judged.
	slack, part float64
}

// ledger holds all figures of a soak by name.
type ledger map[string]*series

func (l ledger) add(name, unit string, value, slack, part float64) {
	s := l[name]
	if s == nil {
		s = &series{unit: unit, slack: slack, part: part}
		l[name] = s
	}
	s.values = append(s.values, value)
}

// late is the second half: before it a system warms up.
func (s *series) late() []float64 { return s.values[len(s.values)/2:] }

const (
	loadFigure = "load: submissions within 150 s"
	loadWindow = 150 * time.Second // at least as long as a row is kept, with the minute until it is looked for
	rowsOf     = "rows: "
)

// judged is a figure as it is judged: rows come and go with the load, which other users of the machine change, so that
// they are told for the same load at all times.
func (l ledger) judged(name string) *series {
	s, load := l[name], l[loadFigure]
	if load == nil || !strings.HasPrefix(name, rowsOf) || name == rowsOf+"schedule_runs" { // these come with time alone
		return s
	}
	usual, same := median(load.late()), *s
	same.values = make([]float64, len(s.values))
	for i, v := range s.values {
		same.values[i] = v * usual / max(1, load.values[i])
	}
	return &same
}

// growth is what the figure gains over the second half by the median of the slopes between all pairs of its values, which
// single outliers and the teeth of a saw do not move.
func (s *series) growth() float64 {
	late := s.late()
	var slopes []float64
	for i := range late {
		for j := i + 1; j < len(late); j++ {
			slopes = append(slopes, (late[j]-late[i])/float64(j-i))
		}
	}
	return median(slopes) * float64(len(late)-1)
}

func (s *series) allowed() float64 { return max(s.slack, s.part*median(s.late())) }

func (s *series) leaks() bool { return s.allowed() > 0 && s.growth() > s.allowed() }

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// leaking names the figures that grow.
func (l ledger) leaking() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if l.judged(name).leaks() {
			all = append(all, name)
		}
	}
	return all
}

// print shows what every figure was at the beginning, in the middle and at the end, as medians of some values.
func (l ledger) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "figure\tunit\tbegin\tmiddle\tend\tgrowth\tallowed\t\t")
	for _, name := range slices.Sorted(maps.Keys(l)) {
		s, j := l[name], l.judged(name)
		n, tenth := len(s.values), max(1, len(s.values)/10)
		allowed, verdict := fmt.Sprintf("%.1f", j.allowed()), "flat"
		switch {
		case s.allowed() == 0:
			allowed, verdict = "", ""
		case j.leaks():
			verdict = "GROWS"
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%+.1f\t%s\t%s\t\n", name, s.unit,
			median(s.values[:tenth]), median(s.values[n/2-tenth/2:n/2-tenth/2+tenth]), median(s.values[n-tenth:]), j.growth(), allowed, verdict)
	}
	_ = w.Flush() // to the screen
}

// TestRowsGoWithTheLoad judges rows that follow the load, and rows that do not.
func TestRowsGoWithTheLoad(t *testing.T) {
	l := ledger{}
	for i := range 100 {
		load := 100 + float64(i*10)
		l.add(loadFigure, "", load, 0, 0)
		l.add(rowsOf+"kept for a while", "", load, 60, 0.4)
		l.add(rowsOf+"kept for ever", "", load*float64(i), 60, 0.4)
	}
	if got := l.leaking(); len(got) != 1 || got[0] != rowsOf+"kept for ever" {
		t.Errorf("leaking are %v", got)
	}
}

// TestFlatness judges figures that are made up.
func TestFlatness(t *testing.T) {
	for name, c := range map[string]struct {
		value func(i int) float64
		leaks bool
	}{
		"constant":             {func(int) float64 { return 100 }, false},
		"noise":                {func(i int) float64 { return 100 + float64(i*7919%31) }, false},
		"warming up":           {func(i int) float64 { return min(100, float64(3*i)) }, false},
		"the teeth of a saw":   {func(i int) float64 { return 100 + float64(i%12) }, false},
		"an outlier":           {func(i int) float64 { return 100 + max(0, float64(i-98)*1000) }, false},
		"falling":              {func(i int) float64 { return 1000 - float64(i) }, false},
		"growing":              {func(i int) float64 { return 100 + float64(i)/2 }, true},
		"growing, with noise":  {func(i int) float64 { return 100 + float64(i)/2 + float64(i*7919%31) }, true},
		"growing from nothing": {func(i int) float64 { return float64(i) }, true},
	} {
		l := ledger{}
		for i := range 100 {
			l.add(name, "", c.value(i), 10, 0.1)
		}
		if got := len(l.leaking()) > 0; got != c.leaks {
			t.Errorf("%s: leaks %v, growth %g of %g", name, got, l[name].growth(), l[name].allowed())
		}
	}
}
