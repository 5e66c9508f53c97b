package jobs_test

import (
	"context"
	"io"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
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
	*jobsrig.Builder

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
	p := fake.New(fake.Options{State: r.State, PerNode: true})
	t.Cleanup(func() { r.Must(p.Close()) })
	silent := &mute{&jobsrig.Builder{Provider: p, Engine: &jobsrig.Images{Held: []string{"fake"}}}, make(chan struct{}, 1)}
	const grace = 100 * time.Millisecond
	w := r.Worker(8, func(c *worker.Config) { c.Provider, c.Grace = silent, grace })
	box := r.readied()
	for _, op := range []fake.Op{fake.OpForget, fake.OpFile, fake.OpDelete} {
		r.State.Inject(fake.Fault{Op: op, Times: 100, Hang: true})
	}
	ended := r.Exec(box, "fake:stdout out") // its end is written, and its output is not dropped
	r.Wait(ended)
	r.Eventually("the output is to be dropped", func() bool { return r.State.Calls(fake.OpForget) > 0 })
	read := r.Submit(box, &kind.Read{Path: "a"}, jobsrig.Options())
	r.Eventually("a file is read", func() bool { return r.State.Calls(fake.OpFile) > 0 })
	<-silent.asked
	began := time.Now()
	w.Stop(context.Background())
	// Without a bound it is the minute that a follow-up, or a look at the images, may take.
	if took := time.Since(began); took > grace+30*time.Second {
		t.Errorf("the worker took %v to stop, its grace is %v", took, grace)
	}
	if j := r.Job(read); j.State != models.Queued {
		t.Errorf("the read is %s, it was to be handed over", j.State)
	}
}

// TestAWorkerThatStoppedLeavesNothingInRedis: neither its queues nor what Asynq counted in them.
func TestAWorkerThatStoppedLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.Worker(2)
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	for range 3 {
		r.Wait(r.Exec(box, "fake:exit 0"))
	}
	counted := "asynq:{node-" + w.Node() + "}:processed"
	r.Eventually("Asynq has counted a job", func() bool { return r.RDB.Exists(t.Context(), counted).Val() == 1 })
	w.Stop(t.Context())
	if left, err := r.RDB.Keys(t.Context(), "asynq:{node-*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
