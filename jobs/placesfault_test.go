package jobs_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// trouble is a provider that drops calls and answers, hangs, wants fewer calls and goes away for a while, by chance.
type trouble struct {
	mu   sync.Mutex
	dice *rand.Rand
	away atomic.Bool
	off  atomic.Bool
}

func (f *trouble) decide(op fake.Op, _ string) (fake.Fault, bool) {
	if f.off.Load() {
		return fake.Fault{}, false
	}
	gone := providers.Unavailable.Errorf("nobody is there")
	if f.away.Load() {
		return fake.Fault{Err: gone}, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch n := f.dice.IntN(100); {
	case op == fake.OpList:
		return fake.Fault{}, false
	case n < 8:
		return fake.Fault{Err: gone}, true
	case n < 16:
		return fake.Fault{Err: gone, After: true}, true
	case n < 19:
		return fake.Fault{Err: gone, Hang: true, Delay: 200 * time.Millisecond}, true
	case n < 23:
		return fake.Fault{Err: &providers.Error{Class: providers.RateLimited, Message: "too many", RetryAfter: 100 * time.Millisecond}}, true
	}
	return fake.Fault{}, false
}

// TestTwoProvidersOneInTrouble: creates with an order, and commands, while the first provider misbehaves and is away three times.
// Every create succeeds, every command ends once, and no sandbox is left at either that no row has. The other provider's own
// jobs lose no attempt.
func TestTwoProvidersOneInTrouble(t *testing.T) {
	testenv.Long(t, "it takes half a minute")
	t.Parallel()
	const seed = 7
	r := newRig(t)
	r.Scheduler()
	client, near, far := r.places()
	bad := &trouble{dice: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // the same faults every time
	near.OnCall(bad.decide)
	var callers sync.WaitGroup
	var moved atomic.Int64
	for range 40 {
		callers.Go(func() {
			out, err := client.Create(t.Context(), jobs.CreateSandbox{Providers: []string{"near", "far"}}, jobsrig.Options())
			if err != nil {
				t.Error(err)
				return
			}
			if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
				t.Errorf("a create ended %s: %+v", j.State, j.Error)
				return
			}
			if r.Sandbox(out.Sandbox.ID).Provider == "far" {
				moved.Add(1)
			}
			exec, err := client.Submit(t.Context(), out.Sandbox.ID, &kind.Exec{Command: "fake:append log x; fake:stdout done"}, jobsrig.Options())
			if err != nil {
				t.Error(err)
				return
			}
			if j := r.Wait(exec.Jobs[0].ID); j.State != models.Succeeded || string(j.Stdout) != "done" {
				t.Errorf("a command ended %s with %q: %+v", j.State, j.Stdout, j.Error)
			}
		})
		callers.Go(func() {
			out, err := client.Create(t.Context(), jobs.CreateSandbox{Provider: "far"}, jobsrig.Options())
			if err != nil {
				t.Error(err)
				return
			}
			if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded || j.Attempt != 1 {
				t.Errorf("a create at the other provider ended %s at attempt %d: %+v", j.State, j.Attempt, j.Error)
			}
		})
	}
	r.Eventually("the first has made some", func() bool { return len(near.List()) > 4 })
	for range 3 {
		bad.away.Store(true)
		waits, err := client.Create(t.Context(), jobs.CreateSandbox{Provider: "near"}, jobsrig.Options()) // which finds it out
		r.Must(err)
		r.Eventually("it is seen to be away", func() bool { return r.doing("near").Away > 0 })
		bad.away.Store(false)
		if j := r.Wait(waits.Jobs[0].ID); j.State != models.Succeeded {
			t.Errorf("a create that has waited ended %s: %+v", j.State, j.Error)
		}
	}
	callers.Wait()
	bad.off.Store(true)
	if moved.Load() == 0 || moved.Load() == 40 {
		t.Errorf("%d of 40 creates were moved: there was no choice", moved.Load())
	}
	for name, state := range map[string]*fake.State{"near": near, "far": far} {
		r.Eventually("nobody's sandboxes are removed", func() bool {
			live, err := r.Store.Sandboxes(t.Context(), jobsrig.Tenant, models.SandboxFilter{Live: true, Provider: name, Limit: 200})
			r.Must(err)
			return len(live) == len(state.List())
		})
	}
	live, err := r.Store.Sandboxes(t.Context(), jobsrig.Tenant, models.SandboxFilter{Live: true, Limit: 200})
	r.Must(err)
	for _, b := range live {
		out, err := client.Submit(t.Context(), b.ID, &kind.Stat{Path: "log"}, jobsrig.Options())
		r.Must(err)
		if j := r.Wait(out.Jobs[0].ID); j.State == models.Succeeded && string(j.Result) != "" && !oneByte(j) {
			t.Errorf("the command in %s ran more than once: %s", b.ID, j.Result)
		}
	}
}

// oneByte says whether a file's size is 1.
func oneByte(j models.Job) bool {
	return strings.Contains(string(j.Result), `"size": 1,`) || strings.Contains(string(j.Result), `"size":1,`)
}

// doing is how a provider is doing.
func (r *rig) doing(name string) models.ProviderState {
	r.T.Helper()
	all, err := r.Store.ProviderStates(r.T.Context())
	r.Must(err)
	return all[name]
}
