package jobs_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// inCloud makes a worker one of a service whose sandboxes live on nobody's engine: any worker may work on any of them.
func (r *rig) inCloud() func(*worker.Config) {
	p := fake.New(fake.Options{State: r.state})
	r.t.Cleanup(func() { r.must(p.Close()) })
	return func(c *worker.Config) { c.Provider, c.Engine = p, "" }
}

func (r *rig) live(box string) {
	r.t.Helper()
	if b := r.sandbox(box); b.State != models.SandboxRunning || b.NodeID != nil {
		r.t.Errorf("the sandbox is %s and on %v", b.State, b.NodeID)
	}
}

// TestReconcileOfACloud compares what a service has with the rows both ways, whichever worker does it.
func TestReconcileOfACloud(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	reg := prometheus.NewRegistry()
	first := r.worker(2, r.inCloud(), reconciling(200*time.Millisecond))
	kept, paused, killed, removed := r.readied(), r.readied(), r.readied(), r.readied()
	r.worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	first.Stop(t.Context()) // and its turn at comparing goes with it
	r.plant(r.state, "neverheardof")
	r.state.Crash(killed)
	r.state.Vanish(removed)
	r.must(fake.New(fake.Options{State: r.state}).Pause(t.Context(), paused))
	r.eventually("the orphan is removed", func() bool { return !r.has(r.state, "neverheardof") })
	for _, box := range []string{killed, removed} {
		r.eventually("the loss is noticed", func() bool { return r.sandbox(box).State == models.SandboxLost })
	}
	r.eventually("no body is left", func() bool { return !r.has(r.state, killed) })
	r.eventually("the row says that it is paused", func() bool { return r.sandbox(paused).State == models.SandboxPaused })
	for what, want := range map[string]float64{"orphan": 1, "lost": 2, "repaired": 1} {
		r.eventually("all is counted", func() bool { return counted(t, reg, what) == want })
	}
	r.live(kept)
}

// partly is a service of several accounts, of which the one with some sandboxes does not answer a list.
type partly struct {
	*fake.Provider
	silent atomic.Pointer[[]string]
}

func (p *partly) List(ctx context.Context) ([]providers.Instance, error) {
	all, err := p.Provider.List(ctx)
	for _, id := range *p.silent.Load() {
		all = slices.DeleteFunc(all, func(i providers.Instance) bool { return i.ID == id })
		all = append(all, providers.Instance{ID: id, State: providers.StateUnknown})
	}
	return all, err
}

// TestAnAccountThatDoesNotAnswer proves nothing about its sandboxes; the losses of others are noticed.
func TestAnAccountThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := &partly{Provider: fake.New(fake.Options{State: r.state})}
	t.Cleanup(func() { r.must(p.Close()) })
	p.silent.Store(&[]string{})
	r.worker(2, reconciling(100*time.Millisecond), func(c *worker.Config) { c.Provider, c.Engine = p, "" })
	kept, removed := r.readied(), r.readied() // by these names the first one would be lost first
	p.silent.Store(&[]string{kept, "ended"})
	r.state.Vanish(removed)
	r.eventually("the loss is noticed", func() bool { return r.sandbox(removed).State == models.SandboxLost })
	r.live(kept)
	p.silent.Store(&[]string{})
	r.state.Vanish(kept)
	r.eventually("the loss is noticed once it answers", func() bool { return r.sandbox(kept).State == models.SandboxLost })
}

// TestACloudsLostAnswers: a create that took effect although nobody was told of it is adopted by the next attempt, also by
// another worker's, and a sandbox that was deleted meanwhile is removed.
func TestACloudsLostAnswers(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: providers.Errorf(providers.Unavailable, "the answer was lost")})
	first := r.worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) { c.Grace = 100 * time.Millisecond })
	again, made := r.create(jobs.CreateSandbox{})
	if j := r.wait(made); j.State != models.Succeeded || j.Attempt < 2 {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true})
	other, made := r.create(jobs.CreateSandbox{})
	r.eventually("the second is made", func() bool { return r.has(r.state, other) })
	first.Stop(t.Context())
	r.worker(2, r.inCloud(), reconciling(200*time.Millisecond))
	if j := r.wait(made); j.State != models.Succeeded {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	for _, box := range []string{again, other} {
		r.live(box)
	}
	if n := len(r.state.List()); n != 2 {
		t.Errorf("there are %d resources of 2 sandboxes", n)
	}
}

// TestDeleteOfASandboxThatNoCloudHasNamed: a sandbox is deleted while it is made, and the vendor has not told its id.
func TestDeleteOfASandboxThatNoCloudHasNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = lagging{inner, &sync.Map{}, &atomic.Int32{}}
	})
	r.state.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true})
	box, _ := r.create(jobs.CreateSandbox{})
	r.eventually("it is made, and nobody is told", func() bool { return r.has(r.state, box) })
	gone, err := r.client.Delete(t.Context(), box, true, options())
	r.must(err)
	if j := r.wait(gone.Jobs[0].ID); j.State != models.Succeeded {
		t.Errorf("the delete: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxDeleted || r.has(r.state, box) {
		t.Errorf("the sandbox is %s, and is there: %v", b.State, r.has(r.state, box))
	}
}

// TestACloudOutlivesItsWorkers: where all of them have died, its sandboxes wait for the next, unlike those on an engine.
func TestACloudOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	onEngine := r.worker(2)
	doomed := r.readied()
	onEngine.Stop(t.Context())
	inCloud := r.worker(2, r.inCloud(), reconciling(0))
	box := r.readied()
	inCloud.Stop(t.Context())
	r.sql("UPDATE nodes SET beat_at = beat_at - interval '1 day', lease_until = lease_until - interval '1 day'")
	waiting := r.exec(box, "fake:stdout alive")
	r.scheduler()
	r.eventually("what was on the engine is lost", func() bool { return r.sandbox(doomed).State == models.SandboxLost })
	r.worker(2, r.inCloud(), reconciling(0))
	if j := r.wait(waiting); string(j.Stdout) != "alive" {
		t.Errorf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	r.live(box)
}

// TestADeleteWaitsForAKey: one that a provider refuses for its key is tried again by the same job, until there is another key.
func TestADeleteWaitsForAKey(t *testing.T) {
	t.Parallel()
	for _, class := range []providers.Class{providers.KeyRefused, providers.Refused} {
		r := newRig(t)
		r.worker(2, r.inCloud())
		box := r.readied()
		var asked atomic.Int32
		r.state.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
			return fake.Fault{Op: op, Err: providers.Errorf(class, "unknown key")}, op == fake.OpDelete && asked.Add(1) < 3
		})
		gone, err := r.client.Delete(t.Context(), box, false, options())
		r.must(err)
		if j := r.wait(gone.Jobs[0].ID); j.State != models.Succeeded || asked.Load() != 3 {
			t.Errorf("%s: the delete %s %+v, asked %d times", class, j.State, j.Error, asked.Load())
		}
	}
}
