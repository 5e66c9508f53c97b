package e2e_test

import (
	"testing"
	"time"

	"sandyard/dev/testenv"
)

func TestIdleSandboxGoesAlthoughEverythingRestarts(t *testing.T) {
	t.Parallel()
	// A scheduler that is new to its database waits for a quarter of a minute before silence counts.
	const idle, limit = 2 * time.Second, 40 * time.Second
	for name, end := range map[string]func(*process){"stopped": (*process).Stop, "killed": (*process).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "LEASE", "1500ms") // a killed worker's sandboxes wait for its lease
			box := r.created(object{"idle_timeout_seconds": idle.Seconds()})
			r.each(end)
			r.scheduler = r.start1("scheduler")
			r.startWorker()
			r.startAPI()
			testenv.Eventually(t, "the container is gone", func() bool { return len(r.engine.containers(t)) == 0 })
			gone := time.Since(box.LastActiveAt)
			testenv.Eventually(t, "the sandbox is deleted", func() bool { return r.sandbox(box.ID).State == "deleted" })
			took := time.Since(box.LastActiveAt)
			t.Logf("idle since its start, the container was gone after %v, the sandbox deleted after %v", gone, took)
			if gone < idle || took > limit {
				t.Errorf("it took %v and %v, want between %v and %v", gone, took, idle, limit)
			}
			if b := r.sandbox(box.ID); b.EndReason != "idle" {
				t.Errorf("it ended as %+v", b)
			}
		})
	}
}

func TestTimeoutOutlivesProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	short := r.created(object{"timeout_seconds": 600, "on_timeout": "delete"}).ID
	paused := r.created(object{"timeout_seconds": 600, "on_timeout": "pause"}).ID
	for _, box := range []string{short, paused} {
		r.end(r.submit("/v1/sandboxes/"+box+"/timeout", object{"timeout_seconds": 1}).Job).succeeded(t)
	}
	r.scheduler.Kill()
	r.api.Kill()
	r.scheduler = r.start1("scheduler")
	r.startAPI()
	testenv.Eventually(t, "both have got what is due", func() bool {
		return r.sandbox(short).State == "deleted" && r.sandbox(paused).State == "paused"
	})
	if b := r.sandbox(short); b.EndReason != "timeout" {
		t.Errorf("it ended as %+v", b)
	}
	if found := r.engine.containers(t); len(found) != 1 {
		t.Errorf("one is paused, one deleted; the engine has %v", found)
	}
	r.clean()
}
