package e2e_test

import (
	"cmp"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testenv"
)

// TestAWorkerIsGoneWhenItsGraceIsOver: it hands a command that runs on to the next worker early enough.
func TestAWorkerIsGoneWhenItsGraceIsOver(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	const grace = 20 * time.Second
	r := newRig(t, "DRAIN_GRACE", grace.String())
	box := r.created(object{"memory_mb": 64}).ID
	j := r.start(box, "echo begun >> log; until [ -e go ]; do sleep 0.1; done; echo done")
	r.appears(box, "log")
	first := r.worker
	r.startWorker()
	r.worker.Line(&r.worker.Stderr, `"msg":"worker started"`)
	first.Signal(syscall.SIGTERM)
	first.Await(grace)
	r.file(box, "write", object{"path": "go", "content": "", "parallel": true}).succeeded(t)
	if j = r.end(j).succeeded(t); j.Stdout != "done\n" {
		t.Errorf("the command that was handed over: %s", j)
	}
	if log := r.file(box, "read", object{"path": "log"}); log.Content != "begun\n" {
		t.Errorf("it ran as %q", log.Content)
	}
	r.clean()
}

// TestAWorkerStopsWhileItsEngineHangs, with containers waiting that it cannot remove and a command that it cannot ask.
func TestAWorkerStopsWhileItsEngineHangs(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	const grace = 4 * time.Second
	const hangs = 3 * time.Second // costs as much
	const busy = 20 * time.Second // a machine with other work
	r := prepare(t, "DRAIN_GRACE", grace.String(), "POOL_SIZE", "2")
	direct := r.settings["DOCKER_HOST"]
	engine, host := faultproxy.Engine(t, cmp.Or(direct, client.DefaultDockerHost))
	r.settings["DOCKER_HOST"] = host
	r.startAll()
	r.pool(2)
	box := r.created(object{"memory_mb": 64}).ID
	j := r.start(box, "touch begun; until [ -e go ]; do sleep 0.1; done; echo done")
	r.appears(box, "begun")
	engine.On(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Hang })
	r.worker.Signal(syscall.SIGTERM)
	r.worker.Await(grace + hangs + busy)
	if r.worker.Err() != nil {
		t.Errorf("the worker ended with %v", r.worker.Err())
	}
	r.settings["DOCKER_HOST"], r.settings["POOL_SIZE"] = direct, "0"
	r.startWorker()
	r.file(box, "write", object{"path": "go", "content": "", "parallel": true}).succeeded(t)
	if j = r.end(j).succeeded(t); j.Stdout != "done\n" {
		t.Errorf("the command that was handed over: %s", j)
	}
	r.remove(box)
	r.engine.clear(t) // the pool would take a minute to end by itself and be swept
}
