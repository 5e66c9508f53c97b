package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheDatabasesClockRules looks for moments of a machine's own clock that meet others': in packages that write moments
// down, or exchange them with other processes, it may only measure durations. Connections' deadlines are the machine's own.
func TestTheDatabasesClockRules(t *testing.T) {
	t.Parallel()
	moment := regexp.MustCompile(`time\.Until\(|time\.Now\(\)\.(UTC|Unix\w*|Format|Truncate|Add|Compare|Equal)\(|, time\.Now\(\)\)|NowFunc`)
	for _, dir := range []string{"models", "models/pg", "jobs", "jobs/kind", "jobs/timetable", "jobs/secrets", "jobs/imagepolicy", "jobs/security", "jobs/autoresume", "jobs/slots", "jobs/circuit", "jobs/node", "jobs/worker", "jobs/scheduler", "jobs/loop", "jobs/queue", "jobs/webhook", "web", "web/v1", "web/account", "web/rest", "web/e2b", "web/bridge", "web/workerclient", "web/edge", "web/middleware", "web/problem", "web/calls", "web/mcp", "web/sandboxserver", "web/agentapi", "auth", "vault", "gateway", "tokens"} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				n++
				if moment.MatchString(line) && !strings.Contains(line, "Deadline(") && !strings.Contains(line, "this machine's own") {
					t.Errorf("%s:%d: ask models.Store.Now, machines' clocks differ: %s", file, n, strings.TrimSpace(line))
				}
			}
		}
	}
}
