package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"sandyard/dev/testenv"
)

// TestAStoppedWorkerComesBack: the only worker of its engine is held up until its lease is over, its job was given back and
// its row forgotten. Then it goes on as the same process, with the sandboxes and commands that it had.
func TestAStoppedWorkerComesBack(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	box := r.created(object{"memory_mb": 64}).ID
	home := r.nodeOf(box)
	j := r.start(box, "echo start >> log; echo begun; until [ -e go ]; do sleep 0.1; done; echo done")
	testenv.Eventually(t, "the command runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content == "start\n"
	})
	r.worker.Freeze()
	t.Cleanup(func() { r.worker.Signal(syscall.SIGCONT) }) // before it is asked to end
	testenv.Eventually(t, "the job is given back", func() bool { return r.job(j.ID).State == "queued" })
	r.sql(fmt.Sprintf("DELETE FROM nodes WHERE id = '%s'", home))
	r.worker.Signal(syscall.SIGCONT)
	r.end(r.submit("/v1/sandboxes/"+box+"/files/write", object{"path": "go", "content": "", "parallel": true}).Job).succeeded(t)
	if j = r.end(j).succeeded(t); j.Stdout != "begun\ndone\n" || j.Attempt < 2 {
		t.Errorf("the command of a stopped worker: %s", j)
	}
	if log := r.file(box, "read", object{"path": "log"}); log.Content != "start\n" {
		t.Errorf("the command ran more than once: %q", log.Content)
	}
	if now := r.nodeOf(box); now != home {
		t.Errorf("the sandbox went from %s to %s", home, now)
	}
	if events := r.call("GET", "/v1/sandboxes/"+box+"/events", nil).want(t, 200).raw; strings.Contains(events, "sandbox.lost") {
		t.Errorf("the sandbox was given up: %s", events)
	}
	r.created(object{"memory_mb": 64}) // it takes new ones, too
	r.clean()
}
