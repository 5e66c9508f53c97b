package jobs_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// inCloud makes a worker one of a service whose sandboxes live on nobody's engine: any worker may work on any of them.
func (r *rig) inCloud() func(*worker.Config) {
	p := fake.New(fake.Options{State: r.State})
	r.T.Cleanup(func() { r.Must(p.Close()) })
	return func(c *worker.Config) { c.Provider, c.Engine = p, "" }
}

func (r *rig) live(box string) {
	r.T.Helper()
	if b := r.Sandbox(box); b.State != models.SandboxRunning || b.NodeID != nil {
		r.T.Errorf("the sandbox is %s and on %v", b.State, b.NodeID)
	}
}

// TestReconcileOfACloud compares what a service has with the rows both ways, whichever worker does it.
func TestReconcileOfACloud(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	reg := prometheus.NewRegistry()
	first := r.Worker(2, r.inCloud(), reconciling(200*time.Millisecond))
	kept, paused, killed, removed := r.readied(), r.readied(), r.readied(), r.readied()
	r.Worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	first.Stop(t.Context()) // and its turn at comparing goes with it
	r.plant(r.State, "neverheardof")
	r.State.Crash(killed)
	r.State.Vanish(removed)
	r.Must(fake.New(fake.Options{State: r.State}).Pause(t.Context(), paused))
	r.Eventually("the orphan is removed", func() bool { return !r.has(r.State, "neverheardof") })
	for _, box := range []string{killed, removed} {
		r.Eventually("the loss is noticed", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	}
	r.Eventually("no body is left", func() bool { return !r.has(r.State, killed) })
	r.Eventually("the row says that it is paused", func() bool { return r.Sandbox(paused).State == models.SandboxPaused })
	for what, want := range map[string]float64{"orphan": 1, "lost": 2, "repaired": 1} {
		r.Eventually("all is counted", func() bool { return counted(t, reg, what) == want })
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
	p := &partly{Provider: fake.New(fake.Options{State: r.State})}
	t.Cleanup(func() { r.Must(p.Close()) })
	p.silent.Store(&[]string{})
	r.Worker(2, reconciling(100*time.Millisecond), func(c *worker.Config) { c.Provider, c.Engine = p, "" })
	kept, removed := r.readied(), r.readied() // by these names the first one would be lost first
	p.silent.Store(&[]string{kept, "ended"})
	r.State.Vanish(removed)
	r.Eventually("the loss is noticed", func() bool { return r.Sandbox(removed).State == models.SandboxLost })
	r.live(kept)
	p.silent.Store(&[]string{})
	r.State.Vanish(kept)
	r.Eventually("the loss is noticed once it answers", func() bool { return r.Sandbox(kept).State == models.SandboxLost })
}

// TestACloudsLostAnswers: a create that took effect although nobody was told of it is adopted by the next attempt, also by
// another worker's, and a sandbox that was deleted meanwhile is removed.
func TestACloudsLostAnswers(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Err: providers.Unavailable.Errorf("the answer was lost")})
	first := r.Worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) { c.Grace = 100 * time.Millisecond })
	again, made := r.Create(jobs.CreateSandbox{})
	if j := r.Wait(made); j.State != models.Succeeded || j.Attempt < 2 {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true})
	other, made := r.Create(jobs.CreateSandbox{})
	r.Eventually("the second is made", func() bool { return r.has(r.State, other) })
	first.Stop(t.Context())
	r.Worker(2, r.inCloud(), reconciling(200*time.Millisecond))
	if j := r.Wait(made); j.State != models.Succeeded {
		t.Errorf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
	for _, box := range []string{again, other} {
		r.live(box)
	}
	if n := len(r.State.List()); n != 2 {
		t.Errorf("there are %d resources of 2 sandboxes", n)
	}
}

// TestDeleteOfASandboxThatNoCloudHasNamed: a sandbox is deleted while it is made, and the vendor has not told its id.
func TestDeleteOfASandboxThatNoCloudHasNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(2, r.inCloud(), reconciling(200*time.Millisecond), func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = lagging{inner, &sync.Map{}, &atomic.Int32{}}
	})
	r.State.Inject(fake.Fault{Op: fake.OpCreate, After: true, Hang: true})
	box, _ := r.Create(jobs.CreateSandbox{})
	r.Eventually("it is made, and nobody is told", func() bool { return r.has(r.State, box) })
	gone, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
	r.Must(err)
	if j := r.Wait(gone.Jobs[0].ID); j.State != models.Succeeded {
		t.Errorf("the delete: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxDeleted || r.has(r.State, box) {
		t.Errorf("the sandbox is %s, and is there: %v", b.State, r.has(r.State, box))
	}
}

// TestACloudOutlivesItsWorkers: where all of them have died, its sandboxes wait for the next, unlike those on an engine.
func TestACloudOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	onEngine := r.Worker(2)
	doomed := r.readied()
	onEngine.Stop(t.Context())
	inCloud := r.Worker(2, r.inCloud(), reconciling(0))
	box := r.readied()
	inCloud.Stop(t.Context())
	r.SQL("UPDATE nodes SET beat_at = beat_at - interval '1 day', lease_until = lease_until - interval '1 day'")
	waiting := r.Exec(box, "fake:stdout alive")
	r.Scheduler()
	r.Eventually("what was on the engine is lost", func() bool { return r.Sandbox(doomed).State == models.SandboxLost })
	r.Worker(2, r.inCloud(), reconciling(0))
	if j := r.Wait(waiting); string(j.Stdout) != "alive" {
		t.Errorf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	r.live(box)
}

// TestADeleteWaitsForAKey: one that a provider refuses for its key is tried again by the same job, until there is another key.
func TestADeleteWaitsForAKey(t *testing.T) {
	t.Parallel()
	for _, class := range []providers.Class{providers.KeyRefused, providers.Refused} {
		r := newRig(t)
		r.Worker(2, r.inCloud())
		box := r.readied()
		var asked atomic.Int32
		r.State.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
			return fake.Fault{Op: op, Err: class.Errorf("unknown key")}, op == fake.OpDelete && asked.Add(1) < 3
		})
		gone, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
		r.Must(err)
		if j := r.Wait(gone.Jobs[0].ID); j.State != models.Succeeded || asked.Load() != 3 {
			t.Errorf("%s: the delete %s %+v, asked %d times", class, j.State, j.Error, asked.Load())
		}
	}
}
