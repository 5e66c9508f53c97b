package e2e_test

import (
	"strings"
	"testing"

	"sandyard/dev/testenv"

	"github.com/docker/docker/api/types/container"
)

func TestSandboxFromThePoolOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, "POOL_SIZE", "2")
	pool := r.pool(2)
	box := r.created(object{"env": object{"WHO": "me"}}).ID
	if got := r.exec(box, `echo "$WHO"`).Stdout; got != "me\n" {
		t.Errorf("got %q", got)
	}
	for _, c := range r.engine.list(t) {
		if c.Names[0] == "/sandyard-"+box && !pool[c.ID] {
			t.Errorf("the sandbox is container %s, not from the pool %v", c.ID, pool)
		}
	}
	r.worker.Stop()
	if left := r.engine.containers(t); len(left) != 1 {
		t.Errorf("left by the worker: %v, want the sandbox", left)
	}
	r.startWorker()
	if got := r.exec(box, `echo "$WHO"`).Stdout; got != "me\n" {
		t.Errorf("under the next worker, got %q", got)
	}
	r.remove(box)
}

// pool waits until so many containers wait, and returns the engine's ids of them.
func (r *rig) pool(size int) map[string]bool {
	r.t.Helper()
	var ids map[string]bool
	testenv.Eventually(r.t, "the pool is full", func() bool {
		ids = map[string]bool{}
		for _, c := range r.engine.list(r.t) {
			if strings.HasPrefix(c.Names[0], "/sandyard-pool-") && c.State == container.StateRunning {
				ids[c.ID] = true
			}
		}
		return len(ids) == size
	})
	return ids
}
