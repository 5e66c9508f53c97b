package e2e_test

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/faultproxy"
)

// TestProcessesStartWhilePostgreSQLBreaksOff cuts the connection at what each of them first writes there.
func TestProcessesStartWhilePostgreSQLBreaksOff(t *testing.T) {
	t.Parallel()
	r := prepare(t)
	proxy, through := faultproxy.Postgres(t, r.settings["DATABASE_URL"])
	r.settings["DATABASE_URL"] = through
	var mu sync.Mutex
	left := map[string]faultproxy.Fault{`INTO "settings"`: faultproxy.CutBefore, `FROM "settings"`: faultproxy.CutBefore, `INTO nodes`: faultproxy.CutAfter, `INTO "templates"`: faultproxy.CutAfter}
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		for what, fault := range left {
			if strings.Contains(c.Text, what) {
				delete(left, what)
				return fault
			}
		}
		return faultproxy.None
	})
	r.startAll()
	r.worker.Line(&r.worker.Stderr, `"msg":"worker started"`)
	box := r.create(object{"memory_mb": 64}).ID
	if got := r.exec(box, "echo there").Stdout; got != "there\n" {
		t.Errorf("it says %q", got)
	}
	r.remove(box)
	mu.Lock()
	defer mu.Unlock()
	for what := range maps.Keys(left) {
		t.Errorf("no process has asked for %s", what)
	}
}
