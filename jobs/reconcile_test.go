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

	"sandyard/dev/jobsrig"
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
	r.T.Helper()
	_, err := fake.New(fake.Options{State: state}).Create(r.T.Context(), providers.Spec{ID: id, Image: "fake"})
	r.Must(err)
}

// has says whether a backend has a resource.
func (r *rig) has(state *fake.State, id string) bool {
	r.T.Helper()
	list, err := fake.New(fake.Options{State: state}).List(r.T.Context())
	r.Must(err)
	for _, i := range list {
		if i.ID == id {
			return true
		}
	}
	return false
}

// happened says whether a sandbox has had an event, with its reason.
func (r *rig) happened(sandbox, event string) (reason string, ok bool) {
	r.T.Helper()
	list, err := r.Store.Events(r.T.Context(), jobsrig.Tenant, models.EventFilter{Sandbox: sandbox, Limit: 1000})
	r.Must(err)
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
	r.Scheduler()
	reg := prometheus.NewRegistry()
	r.plant(r.State, "neverheardof")
	r.Worker(4, reconciling(200*time.Millisecond), func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	kept, created := r.Create(jobs.CreateSandbox{})
	gone, _ := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	out, err := r.Client.Delete(t.Context(), gone, false, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	r.plant(r.State, gone) // as a create that its engine finished after the delete
	r.Eventually("the orphans are removed", func() bool { return !r.has(r.State, "neverheardof") && !r.has(r.State, gone) })
	if !r.has(r.State, kept) || r.Sandbox(kept).State != models.SandboxRunning {
		t.Errorf("the living sandbox is %s", r.Sandbox(kept).State)
	}
	r.Eventually("both are counted", func() bool { return counted(t, reg, "orphan") == 2 })
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
	return nil, providers.Unavailable.Errorf("the engine is away")
}

// TestReconcileCountsWhatIsSwept, once, and a sweep that fails keeps nothing else from being compared.
func TestReconcileCountsWhatIsSwept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	reg := prometheus.NewRegistry()
	p := &sweeping{Provider: fake.New(fake.Options{State: r.State, PerNode: true})}
	r.Worker(2, reconciling(0), func(c *worker.Config) { c.Provider, c.Metrics = p, worker.NewMetrics(reg) })
	t.Cleanup(func() { r.Must(p.Close()) })
	r.Eventually("it sweeps again", func() bool { return p.sweeps.Load() > 2 })
	r.plant(r.State, "neverheardof")
	r.Eventually("the orphan is removed", func() bool { return !r.has(r.State, "neverheardof") })
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
	r.Scheduler()
	p := &sweeping{Provider: fake.New(fake.Options{State: r.State, PerNode: true})}
	t.Cleanup(func() { r.Must(p.Close()) })
	r.Worker(2, reconciling(0), func(c *worker.Config) { c.Provider = p })
	box := r.readied()
	r.State.OnCall(func(op fake.Op, sandbox string) (fake.Fault, bool) {
		late := fake.Fault{Delay: 100 * time.Millisecond, Err: providers.Internal.Errorf("it cannot be removed")}
		late.Hang = strings.HasPrefix(sandbox, "hangs")
		return late, op == fake.OpDelete && (late.Hang || strings.HasPrefix(sandbox, "fails"))
	})
	for n := range 20 {
		r.plant(r.State, fmt.Sprintf("fails%02d", n))
	}
	for n := range 4 {
		r.plant(r.State, fmt.Sprintf("hangs%02d", n))
	}
	r.Eventually("the removals have begun", func() bool { return r.State.Calls(fake.OpDelete) >= 8 })
	swept := p.sweeps.Load()
	r.State.Crash(box)
	r.plant(r.State, "nothingwrong")
	r.Eventually("the loss is noticed", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	r.Eventually("the provider sweeps", func() bool { return p.sweeps.Load() > swept+1 })
	r.Eventually("no body is left", func() bool { return !r.has(r.State, box) })
	r.Eventually("what can be removed is", func() bool { return !r.has(r.State, "nothingwrong") })
	if !r.has(r.State, "fails00") || !r.has(r.State, "hangs00") {
		t.Error("what was not to be removed is gone")
	}
}

func TestReconcileNoticesTheDeadAndTheVanished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(4, reconciling(200*time.Millisecond))
	killed, made := r.Create(jobs.CreateSandbox{})
	removed, made2 := r.Create(jobs.CreateSandbox{})
	paused, _ := r.Create(jobs.CreateSandbox{})
	kept, made3 := r.Create(jobs.CreateSandbox{})
	for _, id := range []string{made, made2, made3, r.Submit(paused, &kind.Pause{}, jobsrig.Options())} {
		r.Wait(id)
	}
	r.State.Crash(killed)
	r.State.Vanish(removed)
	r.State.Crash(paused)
	for box, why := range map[string]string{
		killed: "it died or was killed outside Sandyard", removed: "it was removed outside Sandyard", paused: "it died or was killed outside Sandyard",
	} {
		r.Eventually("the loss is noticed", func() bool { return r.Sandbox(box).State == models.SandboxLost })
		if reason, ok := r.happened(box, "sandbox.lost"); !ok || reason != why {
			t.Errorf("the event says %q, want %q", reason, why)
		}
	}
	r.Eventually("no body is left", func() bool { return !r.has(r.State, killed) && !r.has(r.State, paused) })
	if b := r.Sandbox(kept); b.State != models.SandboxRunning {
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
	r.Scheduler()
	unlisted, lists := &sync.Map{}, &atomic.Int32{}
	r.Worker(4, reconciling(0), func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider = lagging{inner, unlisted, lists}
	})
	kept, removed := r.readied(), r.readied()
	r.State.Vanish(removed)
	unlisted.Store(kept, nil)
	before := lists.Load()
	r.Eventually("what was removed is lost", func() bool { return r.Sandbox(removed).State == models.SandboxLost })
	r.Eventually("some lists have lacked the other", func() bool { return lists.Load() > before+3 })
	if b := r.Sandbox(kept); b.State != models.SandboxRunning {
		t.Errorf("a sandbox that a list lacked is %s", b.State)
	}
	if j := r.Wait(r.Exec(kept, "fake:stdout alive")); string(j.Stdout) != "alive" {
		t.Errorf("its exec: %s %+v", j.State, j.Error)
	}
}

func TestReconcileSeesWhatIsPausedBehindItsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(4, reconciling(0))
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	r.Must(fake.New(fake.Options{State: r.State}).Pause(t.Context(), box))
	r.Eventually("the row says so", func() bool { return r.Sandbox(box).State == models.SandboxPaused })
	if j := r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options())); j.State != models.Succeeded {
		t.Errorf("resume: %s %+v", j.State, j.Error)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning || *b.Observed != "running" {
		t.Errorf("the resumed sandbox is %s, observed %s", b.State, *b.Observed)
	}
}

// TestWhatIsResumedBehindItsBackLivesOn: its clocks start anew, as after a resume that somebody had asked for.
func TestWhatIsResumedBehindItsBackLivesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{IdleTimeoutSeconds: 3600, TimeoutSeconds: 3600})
	paused := r.Submit(box, &kind.Pause{}, jobsrig.Options())
	r.Worker(4, reconciling(0))
	r.Wait(paused)
	r.SQL("UPDATE sandboxes SET last_active_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'")
	r.Must(fake.New(fake.Options{State: r.State}).Resume(t.Context(), box))
	r.Eventually("the row says so", func() bool { return r.Sandbox(box).State == models.SandboxRunning })
	idle, err := r.Store.Due(t.Context(), models.DueIdle(time.Now()), 1)
	r.Must(err)
	late, err := r.Store.Due(t.Context(), models.DueTimeout(), 1)
	r.Must(err)
	if len(idle) > 0 || len(late) > 0 {
		b := r.Sandbox(box)
		t.Errorf("last active at %v, expires at %v: it would end at once", b.LastActiveAt, b.ExpiresAt)
	}
}

// TestAnEngineThatIsAwayProvesNothing: while the engine does not answer nothing is lost; when it is back without its
// containers, as after a restart that kills them, everything is; what a dead node's engine holds is another matter.
func TestAnEngineThatIsAwayProvesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(4, reconciling(0))
	survivor, created := r.Create(jobs.CreateSandbox{})
	victim, created2 := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	r.Wait(created2)
	before := r.State.Calls(fake.OpList)
	r.State.Inject(fake.Fault{Op: fake.OpList, Times: 10, Err: providers.Unavailable.Errorf("the engine restarts")})
	r.Eventually("the engine is away", func() bool { return r.State.Calls(fake.OpList) >= before+4 })
	for _, box := range []string{survivor, victim} {
		if b := r.Sandbox(box); b.State != models.SandboxRunning {
			t.Errorf("while the engine is away the sandbox is %s", b.State)
		}
	}
	r.State.Crash(victim)
	r.Eventually("the engine is back and the victim found dead", func() bool { return r.Sandbox(victim).State == models.SandboxLost })
	if j := r.Wait(r.Exec(survivor, "fake:stdout alive")); string(j.Stdout) != "alive" {
		t.Errorf("the survivor's exec: %s %+v", j.State, j.Error)
	}
}

func TestOneWorkerOfAnEngineReconciles(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	first := r.Worker(2, reconciling(0))
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	r.Eventually("the first compares", func() bool { return r.State.Calls(fake.OpList) > 0 })
	r.Worker(2, reconciling(0))
	first.Stop(t.Context()) // its lease goes with it
	r.Eventually("the sandbox is adopted", func() bool { return *r.Sandbox(box).NodeID != first.Node() })
	r.State.Vanish(box)
	r.Eventually("the second has taken over", func() bool { return r.Sandbox(box).State == models.SandboxLost })
}

// TestSpoolsOfDeadWorkersAreDropped: a worker writes a command's end down and dies before it drops the output in the
// sandbox; whoever adopts the sandbox does it, and leaves background commands alone.
func TestSpoolsOfDeadWorkersAreDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	reg := prometheus.NewRegistry()
	first := r.Worker(4)
	box, _ := r.Create(jobs.CreateSandbox{})
	behind := r.Background(box, "fake:stdout kept")
	r.Wait(r.Submit(box, &kind.ExecWait{ExecRef: jobsrig.Ref(behind)}, jobsrig.Options()))
	before := r.State.Calls(fake.OpForget)
	var over atomic.Bool
	r.State.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Unavailable.Errorf("dead")}, op == fake.OpForget && !over.Load()
	})
	done := r.Exec(box, "fake:stdout out")
	r.Wait(done)
	r.Eventually("the output is not dropped", func() bool { return r.State.Calls(fake.OpForget) > before })
	first.Stop(t.Context()) // its lease goes with it
	over.Store(true)
	tried := r.State.Calls(fake.OpForget)
	r.Worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	r.Eventually("the next worker drops it", func() bool { return counted(t, reg, "spool") == 1 })
	if n := r.State.Calls(fake.OpForget); n != tried+1 {
		t.Errorf("%d outputs were dropped", n-tried)
	}
	sb, err := fake.New(fake.Options{State: r.State}).Open(t.Context(), box)
	r.Must(err)
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
	r.Scheduler()
	first := r.Worker(4)
	box := r.readied()
	var over atomic.Bool
	r.State.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Unavailable.Errorf("no answer")}, op == fake.OpForget && !over.Load()
	})
	r.Wait(r.Exec(box, "fake:stdout out"))
	r.Eventually("the output is not dropped", func() bool { return r.State.Calls(fake.OpForget) > 0 })
	r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options()))
	r.SQL("UPDATE sandboxes SET paused_at = now() - interval '1 hour'")
	r.SQL("UPDATE jobs SET finished_at = now() - interval '1 hour' WHERE kind = 'exec'")
	over.Store(true)
	first.Stop(t.Context())
	second := r.Worker(4)
	r.Eventually("the sandbox is adopted", func() bool { return *r.Sandbox(box).NodeID == second.Node() })
	second.Stop(t.Context())
	r.SQL("DELETE FROM nodes WHERE lease_until < now() AND id = '" + first.Node() + "'")
	reg := prometheus.NewRegistry()
	r.Worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options()))
	r.Eventually("it is dropped in the resumed sandbox", func() bool { return counted(t, reg, "spool") == 1 })
}

// TestAWorkerThatStopsDropsWhatItCan: nobody else knows of an output that could not be dropped a while ago.
func TestAWorkerThatStopsDropsWhatItCan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reg := prometheus.NewRegistry()
	w := r.Worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	box := r.readied()
	r.State.Inject(fake.Fault{Op: fake.OpForget, Err: providers.Unavailable.Errorf("no answer")})
	r.Wait(r.Exec(box, "fake:stdout out"))
	r.Eventually("the output is not dropped", func() bool { return r.State.Calls(fake.OpForget) > 0 })
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
	r.Worker(4, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
	box := r.readied()
	var over atomic.Bool
	r.State.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Unavailable.Errorf("no answer")}, op == fake.OpForget && !over.Load()
	})
	r.Wait(r.Exec(box, "fake:stdout one"))
	r.Wait(r.Exec(box, "fake:stdout two"))
	r.Eventually("both outputs are not dropped", func() bool { return r.State.Calls(fake.OpForget) >= 2 })
	over.Store(true)
	r.Eventually("both are dropped", func() bool { return counted(t, reg, "spool") == 2 })
	over.Store(false)
	tried := r.State.Calls(fake.OpForget)
	r.Wait(r.Exec(box, "fake:stdout three"))
	r.Eventually("the third output is not dropped", func() bool { return r.State.Calls(fake.OpForget) > tried })
	r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options()))
	over.Store(true)
	r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options()))
	r.Eventually("it is dropped in the resumed sandbox", func() bool { return counted(t, reg, "spool") == 3 })
}
