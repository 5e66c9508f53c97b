package jobs_test

import (
	"context"
	"sync/atomic"
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// lateProvider fails its first create for good, once it is let go.
type lateProvider struct {
	providers.Provider
	struck atomic.Bool
	let    chan struct{}
}

func (p *lateProvider) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	if p.struck.Swap(true) {
		return p.Provider.Create(ctx, spec)
	}
	<-p.let
	return providers.Instance{}, providers.Invalid.Errorf("not like this")
}

// TestFailedCreateLeavesAnothersSandboxAlone: an attempt loses its job without knowing, the next one makes the sandbox,
// and then the first fails for good: it may not undo what it takes for its own.
func TestFailedCreateLeavesAnothersSandboxAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	inner := fake.New(fake.Options{State: r.State, PerNode: true})
	late := &lateProvider{Provider: inner, let: make(chan struct{})}
	w := r.Worker(2, func(c *worker.Config) { c.Provider = late })
	box, created := r.Create(jobs.CreateSandbox{})
	r.Eventually("the create is under way", late.struck.Load)
	r.SQL("UPDATE jobs SET lease_until = now() - interval '1 second' WHERE id = $1", created)
	if j := r.Wait(created); j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("the create ended %s at attempt %d: %+v", j.State, j.Attempt, j.Error)
	}
	close(late.let)
	w.Stop(t.Context()) // which waits for the first attempt
	if b := r.Sandbox(box); !r.has(r.State, box) || b.State != models.SandboxRunning {
		t.Errorf("the sandbox is %s, and is there: %v", b.State, r.has(r.State, box))
	}
	r.Must(inner.Close())
}
