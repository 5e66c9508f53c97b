package jobs_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// away makes the provider answer every call with an error of the class, as long as it is not empty.
func (r *rig) away() *atomic.Value {
	var class atomic.Value
	class.Store(providers.Class(""))
	r.State.OnCall(func(fake.Op, string) (fake.Fault, bool) {
		c, _ := class.Load().(providers.Class)
		return fake.Fault{Err: c.Errorf("nobody is there")}, c != ""
	})
	return &class
}

func (r *rig) provider() models.ProviderState { return r.doing("fake") }

// TestAnOutageOfTheProviderCostsNoAttempts: more tries than a job has attempts meet a provider that is away, or does not take our
// key. They wait and succeed when it is back, and everybody can see why they wait.
func TestAnOutageOfTheProviderCostsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, class := range []providers.Class{providers.Unavailable, providers.Refused} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Scheduler()
			reg := prometheus.NewRegistry()
			r.Worker(8, func(c *worker.Config) { c.Metrics = worker.NewMetrics(reg) })
			box := r.readied()
			away := r.away()
			away.Store(class)
			exec := r.Exec(box, "fake:stdout hello")
			_, create := r.Create(jobs.CreateSandbox{})
			r.SQL("UPDATE jobs SET max_attempts = 2 WHERE state = 'queued' OR state = 'running'")
			for _, id := range []string{exec, create} {
				r.Eventually("the job has come back more often than it may fail", func() bool { return r.Job(id).Handovers > 3 })
			}
			r.Eventually("the node's row says so", func() bool {
				p := r.provider()
				return p.Workers == 1 && p.Away == 1 && p.AwaySince != nil && p.Reason == string(class)
			})
			if v := gauge(t, reg, "sandyard_provider_available"); v != 0 {
				t.Errorf("sandyard_provider_available is %v", v)
			}
			away.Store(providers.Class(""))
			for _, id := range []string{exec, create} {
				if j := r.Wait(id); j.State != models.Succeeded || j.Tries() != 1 {
					t.Errorf("%s ended %s after %d tries: %+v", j.Kind, j.State, j.Tries(), j.Error)
				}
			}
			r.Eventually("the node's row says so", func() bool { p := r.provider(); return p.Away == 0 && p.AwaySince == nil && p.Reason == "" })
			if v := gauge(t, reg, "sandyard_provider_available"); v != 1 {
				t.Errorf("sandyard_provider_available is %v", v)
			}
		})
	}
}

// TestOneSilentSandboxIsNoOutage: the provider answers, so the others work on, and the job fails as usual.
func TestOneSilentSandboxIsNoOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(8)
	dead, well := r.readied(), r.readied()
	r.State.OnCall(func(_ fake.Op, box string) (fake.Fault, bool) {
		return fake.Fault{Err: providers.Unavailable.Errorf("the guest does not answer")}, box == dead
	})
	failing := r.Exec(dead, "fake:stdout hello")
	r.SQL("UPDATE jobs SET max_attempts = 3 WHERE id = $1", failing)
	if j := r.Wait(failing); j.State != models.Failed || j.Tries() != 3 || j.Error.Code != string(providers.Unavailable) {
		t.Errorf("it ended %s after %d tries: %+v", j.State, j.Tries(), j.Error)
	}
	if j := r.Wait(r.Exec(well, "fake:stdout hello")); j.State != models.Succeeded || j.Handovers != 0 {
		t.Errorf("the other sandbox: %s after %d hand-overs", j.State, j.Handovers)
	}
	if p := r.provider(); p.Away != 0 {
		t.Errorf("the provider is said to be away: %+v", p)
	}
}

// TestAJobOfAnAbsentProviderIsCancelled: nobody waits for a provider to have nothing done there.
func TestAJobOfAnAbsentProviderIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(8)
	box := r.readied()
	r.away().Store(providers.Unavailable)
	write := r.Submit(box, &kind.Remove{Path: "a"}, jobsrig.Options())
	r.Eventually("it has come back", func() bool { return r.Job(write).Handovers > 0 })
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, write, "test")
	r.Must(err)
	if j := r.Wait(write); j.State != models.Cancelled {
		t.Errorf("it ended %s", j.State)
	}
}

// clocked is a provider whose backend ends sandboxes by a clock of its own.
type clocked struct {
	*fake.Provider
	until *atomic.Value // time.Time
	told  *atomic.Int64
}

func (c clocked) List(ctx context.Context) ([]providers.Instance, error) {
	list, err := c.Provider.List(ctx)
	for i := range list {
		list[i].Until, _ = c.until.Load().(time.Time)
	}
	return list, err
}

func (c clocked) SetTimeout(_ context.Context, _ string, left time.Duration) error {
	c.told.Add(1)
	c.until.Store(time.Now().Add(left))
	return nil
}

// TestAProvidersClockFollowsOurs: a backend that would end a sandbox earlier than we is told, once.
func TestAProvidersClockFollowsOurs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	p := clocked{fake.New(fake.Options{State: r.State}), &atomic.Value{}, &atomic.Int64{}}
	t.Cleanup(func() { r.Must(p.Close()) })
	p.until.Store(time.Now().Add(10 * time.Minute))
	r.Worker(8, reconciling(50*time.Millisecond), func(c *worker.Config) { c.Provider, c.Engine = p, "" })
	box, made := r.Create(jobs.CreateSandbox{TimeoutSeconds: 300})
	r.Wait(made)
	r.compared(5)
	if n := p.told.Load(); n != 0 {
		t.Errorf("told %d times, although it ends later than we do", n)
	}
	r.Wait(r.Submit(box, &kind.SetTimeout{TimeoutSeconds: 7200}, jobsrig.Options()))
	r.Eventually("it is told of the new timeout", func() bool {
		until, _ := p.until.Load().(time.Time)
		return time.Until(until) > 2*time.Hour
	})
	r.compared(5)
	if n := p.told.Load(); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

// compared waits for some more comparisons of the provider with the tables.
func (r *rig) compared(times int) {
	r.T.Helper()
	before := r.State.Calls(fake.OpList)
	r.Eventually("they are compared", func() bool { return r.State.Calls(fake.OpList) >= before+times })
}

// gauge is the value of a metric without labels.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
