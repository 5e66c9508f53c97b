package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

func asJSON(w io.Writer, rows []row) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rows)
}

// table writes rows as a Markdown table, which reads well in a terminal, too.
func table(w io.Writer, rows []row) error {
	cells := [][]string{
		{"what", "unit", "ours p50", "p99", "baseline", "p50", "p99", "times better"},
		{"---", "---", "---:", "---:", "---", "---:", "---:", "---:"},
	}
	for _, r := range rows {
		cells = append(cells, []string{
			r.Name, r.Unit, short(r.P50), optional(r.P99), r.Baseline, short(r.BaselineP50),
			optional(r.BaselineP99), short(r.Ratio),
		})
	}
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, line := range cells {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len(cell))
			if strings.HasSuffix(cells[1][i], ":") {
				cell = pad + cell
			} else {
				cell += pad
			}
			if _, err := fmt.Fprint(w, "| ", cell, " "); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, "|"); err != nil {
			return err
		}
	}
	return nil
}

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return short(*v)
}

// short keeps three digits, or all of an integer.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}
