package jobs_test

import (
	"context"
	"io"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// mute is a provider whose engine answers nothing about images.
type mute struct {
	*builder

	asked chan struct{}
}

// Built implements providers.Builder.
func (m *mute) Built(ctx context.Context) ([]string, error) {
	select {
	case m.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Build implements providers.Builder.
func (m *mute) Build(ctx context.Context, _ providers.Build, _ io.Writer) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAWorkerStopsOnAnEngineThatHangs: it waits for its jobs' grace, and not for what they, their follow-ups and the worker's loops
// have asked the engine.
func TestAWorkerStopsOnAnEngineThatHangs(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	r := newRig(t)
	p := fake.New(fake.Options{State: r.state, PerNode: true})
	t.Cleanup(func() { r.must(p.Close()) })
	silent := &mute{&builder{Provider: p, engine: &images{held: []string{"fake"}}}, make(chan struct{}, 1)}
	const grace = 100 * time.Millisecond
	w := r.worker(8, func(c *worker.Config) { c.Provider, c.Grace = silent, grace })
	box := r.readied()
	for _, op := range []fake.Op{fake.OpForget, fake.OpFile, fake.OpDelete} {
		r.state.Inject(fake.Fault{Op: op, Times: 100, Hang: true})
	}
	ended := r.exec(box, "fake:stdout out") // its end is written, and its output is not dropped
	r.wait(ended)
	r.eventually("the output is to be dropped", func() bool { return r.state.Calls(fake.OpForget) > 0 })
	read := r.submit(box, &kind.Read{Path: "a"}, options())
	r.eventually("a file is read", func() bool { return r.state.Calls(fake.OpFile) > 0 })
	<-silent.asked
	began := time.Now()
	w.Stop(context.Background())
	// Without a bound it is the minute that a follow-up, or a look at the images, may take.
	if took := time.Since(began); took > grace+30*time.Second {
		t.Errorf("the worker took %v to stop, its grace is %v", took, grace)
	}
	if j := r.job(read); j.State != models.Queued {
		t.Errorf("the read is %s, it was to be handed over", j.State)
	}
}

// TestAWorkerThatStoppedLeavesNothingInRedis: neither its queues nor what Asynq counted in them.
func TestAWorkerThatStoppedLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	for range 3 {
		r.wait(r.exec(box, "fake:exit 0"))
	}
	counted := "asynq:{node-" + w.Node() + "}:processed"
	r.eventually("Asynq has counted a job", func() bool { return r.rdb.Exists(t.Context(), counted).Val() == 1 })
	w.Stop(t.Context())
	if left, err := r.rdb.Keys(t.Context(), "asynq:{node-*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
