package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// row is one comparison. Figures are in Unit; not everything has a P99. Ratio says how many times better we are than the
// baseline: more per second, or less to wait for.
type row struct {
	Name        string   `json:"name"`
	Unit        string   `json:"unit"`
	P50         float64  `json:"p50"`
	P99         *float64 `json:"p99"`
	Baseline    string   `json:"baseline"`
	BaselineP50 float64  `json:"baseline_p50"`
	BaselineP99 *float64 `json:"baseline_p99"`
	Ratio       float64  `json:"ratio"`
}

// moreIsBetter says whether a figure is not something to wait for or to pay.
func (r row) moreIsBetter() bool {
	return strings.HasSuffix(r.Unit, "/s") || strings.HasPrefix(r.Unit, "%")
}

// read returns the comparisons in in, in their order, and writes all other lines to rest. A failed run is an error.
func read(in io.Reader, rest io.Writer) ([]row, error) {
	var rows []row
	failed := false
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		found, err := comparisons(lines.Text())
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			fmt.Fprintln(rest, lines.Text())
		}
		failed = failed || strings.HasPrefix(lines.Text(), "FAIL") || strings.HasPrefix(lines.Text(), "--- FAIL")
		rows = append(rows, found...)
	}
	if failed {
		return nil, fmt.Errorf("the benchmarks failed")
	}
	return rows, lines.Err()
}

// result is a line such as
//
//	BenchmarkExec/one_client/vs_docker_exec-2   1   4.1 ours-p50-ms   52.0 base-p50-ms
var (
	result = regexp.MustCompile(`^Benchmark(\S+)/vs_(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	figure = regexp.MustCompile(`(\S+)\s+(ours|base)-(p50|p99)-(\S+)`)
)

// comparisons returns one row for each unit of a line: a loaded server has a rate and a latency.
func comparisons(line string) ([]row, error) {
	m := result.FindStringSubmatch(line)
	if m == nil {
		return nil, nil
	}
	var units []string
	values := map[string]float64{} // by who-statistic-unit
	for _, f := range figure.FindAllStringSubmatch(m[3], -1) {
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		values[f[2]+"-"+f[3]+"-"+f[4]] = v
		if f[2]+f[3] == "oursp50" {
			units = append(units, f[4])
		}
	}
	var rows []row
	for _, unit := range units {
		rows = append(rows, compare(m[1], m[2], unit, values))
	}
	return rows, nil
}

func compare(name, baseline, unit string, values map[string]float64) row {
	r := row{
		Name: spoken(name), Unit: strings.ReplaceAll(unit, "_", " "), Baseline: spoken(baseline),
		P50: values["ours-p50-"+unit], BaselineP50: values["base-p50-"+unit],
	}
	r.Ratio = r.BaselineP50 / r.P50
	if r.moreIsBetter() {
		r.Ratio = 1 / r.Ratio
	}
	r.P99, r.BaselineP99 = optionalOf(values, "ours-p99-"+unit), optionalOf(values, "base-p99-"+unit)
	return r
}

// optionalOf is nil for what was not reported: rates, memory, and baselines that were measured elsewhere.
func optionalOf(values map[string]float64, name string) *float64 {
	if v, reported := values[name]; reported {
		return &v
	}
	return nil
}

// spoken undoes what Go makes of a benchmark's name.
func spoken(name string) string {
	name = strings.ReplaceAll(name, "/", ", ")
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}
