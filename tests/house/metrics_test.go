package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const monitoring = "docs/operate/monitoring.md"

// TestMonitoringListsEveryMetric compares the metrics that docs/operate/monitoring.md names with those that jobs and service
// register.
func TestMonitoringListsEveryMetric(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile("[\"`](sandyard_[a-z_]+)[\"`]")
	registered, listed := map[string]bool{}, map[string]bool{}
	for _, file := range goFiles(t) {
		if dir := filepath.Dir(file); !strings.HasPrefix(dir, "jobs") && dir != "app" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			registered[m[1]] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(root, monitoring))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range name.FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = true
		if !registered[m[1]] {
			t.Errorf("%s lists %s, which nothing registers", monitoring, m[1])
		}
	}
	for metric := range registered {
		if !listed[metric] {
			t.Errorf("%s does not list %s", monitoring, metric)
		}
	}
	if len(registered) < 15 {
		t.Errorf("only %d metrics were found", len(registered))
	}
}
