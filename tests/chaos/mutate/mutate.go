// Package mutate builds programs without one of their safeties: texts of source files are replaced while they are
// compiled (go build -overlay). The soak has to find such programs out. No source file has a switch for it.
package mutate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change replaces a text, which stands once in the file.
type change struct{ file, old, new string }

// safeties are what programs can be built without.
func safeties() map[string][]change {
	const fenced = "models/job_claim.go"
	return map[string][]change{
		// The last attempt of a job writes how it ended, and no earlier one.
		"fence": {
			{fenced, `fence     = "attempt = ?"`, `fence     = "(attempt = ? OR true)"`},
			{fenced, `fenceHeld = "h.attempt = j.attempt"`, `fenceHeld = "(h.attempt = j.attempt OR true)"`},
		},
		// Jobs are taken from workers whose lease has ended.
		"sweep": {{
			"jobs/scheduler/sweep.go",
			"func (s *Scheduler) recoverLeases(ctx context.Context) error {\n",
			"func (s *Scheduler) recoverLeases(ctx context.Context) error {\n\tif s != nil {\n\t\treturn nil\n\t}\n",
		}},
		// Engines are compared with the tables.
		"reconcile": {{"jobs/worker/worker.go", "if c.Reconcile > 0 {", "if c.Reconcile < 0 {"}},
		// A command is found by its name, with what it has written.
		"spool": {{"guest/execs/registry.go", "if e := r.named[c.Name]; c.Name != ", "if e := r.named[c.Name]; e == nil && c.Name != "}},
		// A sandbox that is deleted is removed at its vendor.
		"vendor's delete": {{
			"providers/e2b/lifecycle.go",
			"\tfor _, d := range found {\n\t\tif err := p.remove(ctx, d.ID); err != nil {",
			"\tfor _, d := range found[:0] {\n\t\tif err := p.remove(ctx, d.ID); err != nil {",
		}},
		// A command at a vendor is found by its name, where an earlier attempt has begun it.
		"vendor's commands": {{
			"providers/spool/run.go",
			"\ttext, uploads := s.start(cmd, true)\n",
			"\tcmd.Name += time.Now().Format(\"-150405.000000\")\n\ttext, uploads := s.start(cmd, true)\n",
		}},
		// A provider that is away keeps no other one's jobs waiting.
		"isolation": {
			{"jobs/circuit/circuit.go", "// Begin answers an awayError", "var shared *Breaker\n\n// Begin answers an awayError"},
			{
				"jobs/circuit/circuit.go",
				"\tif h.away == nil {\n\t\treturn nil\n\t}\n\trest",
				"\tif h.away == nil {\n\t\tif s := shared; s != nil && s.away != nil {\n\t\t\treturn &AwayError{why: s.away, Rest: time.Second}\n" +
					"\t\t}\n\t\treturn nil\n\t}\n\trest",
			},
			{"jobs/circuit/circuit.go", "\tif h.away == nil {\n\t\th.since = now\n", "\tshared = h\n\tif h.away == nil {\n\t\th.since = now\n"},
		},
		// Nothing is kept of a job that has ended. Without it, a goroutine and a file are.
		"flatness": {{
			"jobs/worker/take.go",
			"\ta.abandon(nil)\n",
			"\ta.abandon(nil)\n\tif kept, _, err := os.Pipe(); err == nil {\n\t\tgo func() { _, _ = kept.Read(make([]byte, 1)) }()\n\t}\n",
		}, {"jobs/worker/take.go", "import (\n", "import (\n\t\"os\"\n"}},
	}
}

// Names are those of the safeties.
func Names() []string { return slices.Sorted(maps.Keys(safeties())) }

// Overlay writes, to dir, what go build -overlay needs to build the module at root without the safety, and returns the
// file to name. Error: the safety is not known, or its code has changed so that it is not found any more.
func Overlay(root, dir, safety string) (string, error) {
	changes := safeties()[safety]
	if len(changes) == 0 {
		return "", fmt.Errorf("no safety is called %q; use one of %v", safety, Names())
	}
	replaced := map[string]string{} // file of the module → what is compiled in its place
	for _, c := range changes {
		from := filepath.Join(root, c.file)
		to := filepath.Join(dir, strings.ReplaceAll(c.file, "/", "-"))
		source := from
		if replaced[from] != "" {
			source = to
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), c.old); n != 1 {
			return "", fmt.Errorf("%s: %q stands there %d times instead of once", c.file, c.old, n)
		}
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
			return "", err
		}
		replaced[from] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
