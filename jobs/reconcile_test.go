package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// reconciling makes a worker compare often, and forgive for the given time only.
func reconciling(grace time.Duration) func(*worker.Config) {
	return func(c *worker.Config) { c.Reconcile, c.ReconcileGrace = 50*time.Millisecond, grace }
}

// plant makes a resource on a backend that no job has asked for.
func (r *rig) plant(state *fake.State, id string) {
	r.t.Helper()
	_, err := fake.New(fake.Options{State: state}).Create(r.t.Context(), providers.Spec{ID: id, Image: "fake"})
	r.must(err)
}

// has says whether a backend has a resource.
func (r *rig) has(state *fake.State, id string) bool {
	r.t.Helper()
	list, err := fake.New(fake.Options{State: state}).List(r.t.Context())
	r.must(err)
	for _, i := range list {
		if i.ID == id {
			return true
		}
	}
	return false
}

// happened says whether a sandbox has had an event, with its reason.
func (r *rig) happened(sandbox, event string) (reason string, ok bool) {
	r.t.Helper()
	list, err := r.store.Events(r.t.Context(), tenant, models.EventFilter{Sandbox: sandbox, Limit: 1000})
	r.must(err)
	for _, e := range list {
		if e.Event == event {
			if e.Reason != nil {
				reason = *e.Reason
			}
			return reason, true
		}
	}
	return "", false
}

func TestReconcileRemovesWhatNoSandboxHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	reg := prometheus.NewRegistry()
	r.plant(r.state, "neverheardof")
	r.worker(4, reconciling(200*time.Millisecond), func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	kept, created := r.create(jobs.CreateSandbox{})
	gone, _ := r.create(jobs.CreateSandbox{})
	r.wait(created)
	out, err := r.client.Delete(t.Context(), gone, false, options())
	r.must(err)
	r.wait(out.Jobs[0].ID)
	r.plant(r.state, gone) // as a create that its engine finished after the delete
	r.eventually("the orphans are removed", func() bool { return !r.has(r.state, "neverheardof") && !r.has(r.state, gone) })
	if !r.has(r.state, kept) || r.sandbox(kept).State != models.SandboxRunning {
		t.Errorf("the living sandbox is %s", r.sandbox(kept).State)
	}
	r.eventually("both are counted", func() bool { return counted(t, reg, "orphan") == 2 })
	if n := counted(t, reg, "lost"); n != 0 {
		t.Errorf("%v sandboxes were counted as lost", n)
	}
}

func counted(t *testing.T, reg *prometheus.Registry, what string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sandyard_reconciled_total" && m.GetLabel()[0].GetValue() == what {
				return value(m)
			}
		}
	}
	t.Fatalf("nothing counts %s", what)
	return 0
}

func value(m *dto.Metric) float64 { return m.GetCounter().GetValue() }

// sweeping is a provider that removes more than sandboxes.
type sweeping struct {
	*fake.Provider

	sweeps atomic.Int64
}

func (s *sweeping) Sweep(context.Context) (map[string]int, error) {
	if s.sweeps.Add(1) == 1 {
		return map[string]int{"volume": 2, "pool": 1, "filler": 0}, nil
	}
	return nil, providers.Errorf(providers.Unavailable, "the engine is away")
}

// TestReconcileCountsWhatIsSwept, once, and a sweep that fails keeps nothing else from being compared.
func TestReconcileCountsWhatIsSwept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	reg := prometheus.NewRegistry()
	p := &sweeping{Provider: fake.New(fake.Options{State: r.state, PerNode: true})}
	r.worker(2, reconciling(0), func(c *worker.Config) { c.Provider, c.Metrics = p, worker.NewMetrics(reg) })
	t.Cleanup(func() { r.must(p.Close()) })
	r.eventually("it sweeps again", func() bool { return p.sweeps.Load() > 2 })
	r.plant(r.state, "neverheardof")
	r.eventually("the orphan is removed", func() bool { return !r.has(r.state, "neverheardof") })
	for sort, want := range map[string]float64{"volume": 2, "pool": 1, "filler": 0, "image": 0} {
		if n := counted(t, reg, sort); n != want {
			t.Errorf("%v of %s are counted, want %v", n, sort, want)
		}
	}
}

// TestWhatCannotBeRemovedKeepsNothingWaiting: some orphans hang when they are removed, and more than there are places fail
// late, each time. Losses are noticed all the same, the provider sweeps, and whatever can be removed is.
func TestWhatCannotBeRemovedKeepsNothingWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	p := &sweeping{Provider: fake.New(fake.Options{State: r.state, PerNode: true})}
	t.Cleanup(func() { r.must(p.Close()) })
	r.worker(2, reconciling(0), func(c *worker.Config) { c.Provider = p })
	box := r.readied()
	r.state.OnCall(func(op fake.Op, sandbox string) (fake.Fault, bool) {
		late := fake.Fault{Delay: 100 * time.Millisecond, Err: providers.Errorf(providers.Internal, "it cannot be removed")}
		late.Hang = strings.HasPrefix(sandbox, "hangs")
		return late, op == fake.OpDelete && (late.Hang || strings.HasPrefix(sandbox, "fails"))
	})
	for n := range 20 {
		r.plant(r.state, fmt.Sprintf("fails%02d", n))
	}
	for n := range 4 {
		r.plant(r.state, fmt.Sprintf("hangs%02d", n))
	}
	r.eventually("the removals have begun", func() bool { return r.state.Calls(fake.OpDelete) >= 8 })
	swept := p.sweeps.Load()
	r.state.Crash(box)
	r.plant(r.state, "nothingwrong")
	r.eventually("the loss is noticed", func() bool { return r.sandbox(box).State == models.SandboxLost })
	r.eventually("the provider sweeps", func() bool { return p.sweeps.Load() > swept+1 })
	r.eventually("no body is left", func() bool { return !r.has(r.state, box) })
	r.eventually("what can be removed is", func() bool { return !r.has(r.state, "nothingwrong") })
	if !r.has(r.state, "fails00") || !r.has(r.state, "hangs00") {
		t.Error("what was not to be removed is gone")
	}
}

func TestReconcileNoticesTheDeadAndTheVanished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.worker(4, reconciling(200*time.Millisecond))
	killed, made := r.create(jobs.CreateSandbox{})
	removed, made2 := r.create(jobs.CreateSandbox{})
	paused, _ := r.create(jobs.CreateSandbox{})
	kept, made3 := r.create(jobs.CreateSandbox{})
	for _, id := range []string{made, made2, made3, r.submit(paused, &kind.Pause{}, options())} {
		r.wait(id)
	}
	r.state.Crash(killed)
	r.state.Vanish(removed)
	r.state.Crash(paused)
	for box, why := range map[string]string{
		killed: "it died or was killed outside Sandyard", removed: "it was removed outside Sandyard", paused: "it died or was killed outside Sandyard",
	} {
		r.eventually("the loss is noticed", func() bool { return r.sandbox(box).State == models.SandboxLost })
		if reason, ok := r.happened(box, "sandbox.lost"); !ok || reason != why {
			t.Errorf("the event says %q, want %q", reason, why)
		}
	}
	r.eventually("no body is left", func() bool { return !r.has(r.state, killed) && !r.has(r.state, paused) })
	if b := r.sandbox(kept); b.State != models.SandboxRunning {
		t.Errorf("the living sandbox is %s", b.State)
	}
}

// lagging is a provider over a vendor's API, whose list lacks some of what there is.
type lagging struct {
	*fake.Provider
	unlisted *sync.Map
	lists    *atomic.Int32
}

func (p lagging) Remember(string, string) {}

func (p lagging) List(ctx context.Context) ([]providers.Instance, error) {
	all, err := p.Provider.List(ctx)
	p.lists.Add(1)
	return slices.DeleteFunc(all, func(i providers.Instance) bool { _, hidden := p.unlisted.Load(i.ID); return hidden }), err
}

// TestAListThatLagsLosesNothing: what a vendor's list lacks is asked for by itself before it counts as lost.
func TestAListThatLagsLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	unlisted, lists := &sync.Map{}, &atomic.Int32{}
	r.worker(4, reconciling(0), func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = lagging{inner, unlisted, lists}
	})
	kept, removed := r.readied(), r.readied()
	r.state.Vanish(removed)
	unlisted.Store(kept, nil)
	before := lists.Load()
	r.eventually("what was removed is lost", func() bool { return r.sandbox(removed).State == models.SandboxLost })
	r.eventually("some lists have lacked the other", func() bool { return lists.Load() > before+3 })
	if b := r.sandbox(kept); b.State != models.SandboxRunning {
		t.Errorf("a sandbox that a list lacked is %s", b.State)
	}
	if j := r.wait(r.exec(kept, "fake:stdout alive")); string(j.Stdout) != "alive" {
		t.Errorf("its exec: %s %+v", j.State, j.Error)
	}
}

func TestReconcileSeesWhatIsPausedBehindItsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.worker(4, reconciling(0))
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	r.must(fake.New(fake.Options{State: r.state}).Pause(t.Context(), box))
	r.eventually("the row says so", func() bool { return r.sandbox(box).State == models.SandboxPaused })
	if j := r.wait(r.submit(box, &kind.Resume{}, options())); j.State != models.Succeeded {
		t.Errorf("resume: %s %+v", j.State, j.Error)
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning || *b.Observed != "running" {
		t.Errorf("the resumed sandbox is %s, observed %s", b.State, *b.Observed)
	}
}

// TestWhatIsResumedBehindItsBackLivesOn: its clocks start anew, as after a resume that somebody had asked for.
func TestWhatIsResumedBehindItsBackLivesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.create(jobs.CreateSandbox{IdleTimeoutSeconds: 3600, TimeoutSeconds: 3600})
	paused := r.submit(box, &kind.Pause{}, options())
	r.worker(4, reconciling(0))
	r.wait(paused)
	r.sql("UPDATE sandboxes SET last_active_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'")
	r.must(fake.New(fake.Options{State: r.state}).Resume(t.Context(), box))
	r.eventually("the row says so", func() bool { return r.sandbox(box).State == models.SandboxRunning })
	idle, err := r.store.Due(t.Context(), models.DueIdle(time.Now()), 1)
	r.must(err)
	late, err := r.store.Due(t.Context(), models.DueTimeout(), 1)
	r.must(err)
	if len(idle) > 0 || len(late) > 0 {
		b := r.sandbox(box)
		t.Errorf("last active at %v, expires at %v: it would end at once", b.LastActiveAt, b.ExpiresAt)
	}
}

// TestAnEngineThatIsAwayProvesNothing: while the engine does not answer nothing is lost; when it is back without its
// containers, as after a restart that kills them, everything is; what a dead node's engine holds is another matter.
func TestAnEngineThatIsAwayProvesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.worker(4, reconciling(0))
	survivor, created := r.create(jobs.CreateSandbox{})
	victim, created2 := r.create(jobs.CreateSandbox{})
	r.wait(created)
	r.wait(created2)
	before := r.state.Calls(fake.OpList)
	r.state.Inject(fake.Fault{Op: fake.OpList, Times: 10, Err: providers.Errorf(providers.Unavailable, "the engine restarts")})
	r.eventually("the engine is away", func() bool { return r.state.Calls(fake.OpList) >= before+4 })
	for _, box := range []string{survivor, victim} {
		if b := r.sandbox(box); b.State != models.SandboxRunning {
			t.Errorf("while the engine is away the sandbox is %s", b.State)
		}
	}
	r.state.Crash(victim)
	r.eventually("the engine is back and the victim found dead", func() bool { return r.sandbox(victim).State == models.SandboxLost })
	if j := r.wait(r.exec(survivor, "fake:stdout alive")); string(j.Stdout) != "alive" {
		t.Errorf("the survivor's exec: %s %+v", j.State, j.Error)
	}
}

func TestOneWorkerOfAnEngineReconciles(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	first := r.worker(2, reconciling(0))
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	r.eventually("the first compares", func() bool { return r.state.Calls(fake.OpList) > 0 })
	r.worker(2, reconciling(0))
	first.Stop(t.Context()) // its lease goes with it
	r.eventually("the sandbox is adopted", func() bool { return *r.sandbox(box).NodeID != first.Node() })
	r.state.Vanish(box)
	r.eventually("the second has taken over", func() bool { return r.sandbox(box).State == models.SandboxLost })
}

// TestSpoolsOfDeadWorkersAreDropped: a worker writes a command's end down and dies before it drops the output in the
// sandbox; whoever adopts the sandbox does it, and leaves background commands alone.
func TestSpoolsOfDeadWorkersAreDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	reg := prometheus.NewRegistry()
	first := r.worker(4)
	box, _ := r.create(jobs.CreateSandbox{})
	behind := r.background(box, "fake:stdout kept")
	r.wait(r.submit(box, &kind.ExecWait{ExecRef: ref(behind)}, options()))
	before := r.state.Calls(fake.OpForget)
	var over atomic.Bool
	r.state.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Errorf(providers.Unavailable, "dead")}, op == fake.OpForget && !over.Load()
	})
	done := r.exec(box, "fake:stdout out")
	r.wait(done)
	r.eventually("the output is not dropped", func() bool { return r.state.Calls(fake.OpForget) > before })
	first.Stop(t.Context()) // its lease goes with it
	over.Store(true)
	tried := r.state.Calls(fake.OpForget)
	r.worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	r.eventually("the next worker drops it", func() bool { return counted(t, reg, "spool") == 1 })
	if n := r.state.Calls(fake.OpForget); n != tried+1 {
		t.Errorf("%d outputs were dropped", n-tried)
	}
	sb, err := fake.New(fake.Options{State: r.state}).Open(t.Context(), box)
	r.must(err)
	out, err := sb.(providers.Background).Output(t.Context(), behind, providers.OutputQuery{})
	if err != nil || string(out.Data) != "kept" {
		t.Errorf("the background command's output is %q, %v", out.Data, err)
	}
}

// TestAnOutputInAPausedSandboxIsDropped: a worker could not drop it before the pause, and stops a long time after. The next one
// that adopts the sandbox drops it when it is resumed, and so does the one after that.
func TestAnOutputInAPausedSandboxIsDropped(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	first := r.worker(4)
	box := r.readied()
	var over atomic.Bool
	r.state.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Errorf(providers.Unavailable, "no answer")}, op == fake.OpForget && !over.Load()
	})
	r.wait(r.exec(box, "fake:stdout out"))
	r.eventually("the output is not dropped", func() bool { return r.state.Calls(fake.OpForget) > 0 })
	r.wait(r.submit(box, &kind.Pause{}, options()))
	r.sql("UPDATE sandboxes SET paused_at = now() - interval '1 hour'")
	r.sql("UPDATE jobs SET finished_at = now() - interval '1 hour' WHERE kind = 'exec'")
	over.Store(true)
	first.Stop(t.Context())
	second := r.worker(4)
	r.eventually("the sandbox is adopted", func() bool { return *r.sandbox(box).NodeID == second.Node() })
	second.Stop(t.Context())
	r.sql("DELETE FROM nodes WHERE lease_until < now() AND id = '" + first.Node() + "'")
	reg := prometheus.NewRegistry()
	r.worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	r.wait(r.submit(box, &kind.Resume{}, options()))
	r.eventually("it is dropped in the resumed sandbox", func() bool { return counted(t, reg, "spool") == 1 })
}

// TestAWorkerThatStopsDropsWhatItCan: nobody else knows of an output that could not be dropped a while ago.
func TestAWorkerThatStopsDropsWhatItCan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reg := prometheus.NewRegistry()
	w := r.worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	box := r.readied()
	r.state.Inject(fake.Fault{Op: fake.OpForget, Err: providers.Errorf(providers.Unavailable, "no answer")})
	r.wait(r.exec(box, "fake:stdout out"))
	r.eventually("the output is not dropped", func() bool { return r.state.Calls(fake.OpForget) > 0 })
	w.Stop(t.Context())
	if n := counted(t, reg, "spool"); n != 1 {
		t.Errorf("%v outputs were dropped", n)
	}
}

// TestAnOutputThatWasNotDroppedIsDroppedLater, while the worker lives, also when its sandbox was paused meanwhile.
func TestAnOutputThatWasNotDroppedIsDroppedLater(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	reg := prometheus.NewRegistry()
	r.worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	box := r.readied()
	var over atomic.Bool
	r.state.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Errorf(providers.Unavailable, "no answer")}, op == fake.OpForget && !over.Load()
	})
	r.wait(r.exec(box, "fake:stdout one"))
	r.wait(r.exec(box, "fake:stdout two"))
	r.eventually("both outputs are not dropped", func() bool { return r.state.Calls(fake.OpForget) >= 2 })
	over.Store(true)
	r.eventually("both are dropped", func() bool { return counted(t, reg, "spool") == 2 })
	over.Store(false)
	tried := r.state.Calls(fake.OpForget)
	r.wait(r.exec(box, "fake:stdout three"))
	r.eventually("the third output is not dropped", func() bool { return r.state.Calls(fake.OpForget) > tried })
	r.wait(r.submit(box, &kind.Pause{}, options()))
	over.Store(true)
	r.wait(r.submit(box, &kind.Resume{}, options()))
	r.eventually("it is dropped in the resumed sandbox", func() bool { return counted(t, reg, "spool") == 3 })
}
