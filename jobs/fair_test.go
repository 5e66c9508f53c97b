package jobs_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
)

// neighbour makes a second tenant and returns its options.
func (r *rig) neighbour() jobs.Options {
	r.T.Helper()
	r.SQL(`INSERT INTO tenants (id, name, max_sandboxes, webhook_secret) VALUES ('neighbour', 'neighbour', 100, 'whsec_') ON CONFLICT DO NOTHING`)
	return jobs.Options{TenantID: "neighbour", Actor: "neighbour"}
}

// fill has as many commands sleep in the sandbox, next to each other.
func (r *rig) fill(box string, n int) (ids []string) {
	r.T.Helper()
	o := jobsrig.Options()
	o.Parallel = true
	for range n {
		ids = append(ids, r.Submit(box, &kind.Exec{Command: "fake:sleep 1h", TimeoutSeconds: 86400}, o))
	}
	return ids
}

// ended waits for the end of a neighbour's job.
func (r *rig) ended(o jobs.Options, id string) models.Job {
	r.T.Helper()
	j, err := r.Waiters.Wait(r.T.Context(), o.TenantID, id, testenv.Patience())
	r.Must(err)
	if j.State != models.Succeeded {
		r.T.Fatalf("the %s of %s is %s after %v: %+v", j.Kind, o.TenantID, j.State, testenv.Patience(), j.Error)
	}
	return j
}

// TestCommandsThatWaitHoldNoSlot: neither another tenant nor the tenant's own timeouts wait for them.
func TestCommandsThatWaitHoldNoSlot(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	a := r.readied()
	for _, id := range r.fill(a, 8) {
		r.Eventually("all commands run", func() bool { return r.State.Starts(id) == 1 })
	}
	next := r.neighbour()
	out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{}, next)
	r.Must(err)
	r.ended(next, out.Jobs[0].ID)
	for _, args := range []kind.Args{&kind.Write{Path: "a", Content: "x"}, &kind.Read{Path: "a"}, &kind.Exec{Command: "fake:stdout x"}} {
		out, err := r.Client.Submit(t.Context(), out.Sandbox.ID, args, next)
		r.Must(err)
		r.ended(next, out.Jobs[0].ID)
	}
	short, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.Eventually("the timeout deletes", func() bool { return r.Sandbox(short).State == models.SandboxDeleted })
}

// TestSlowSandboxesHoldNoSlot: calls that a sandbox leaves unanswered give their slots back.
func TestSlowSandboxesHoldNoSlot(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(1)
	slow, quick := r.readied(), r.readied()
	o := jobsrig.Options()
	o.Parallel = true
	r.State.Inject(fake.Fault{Op: fake.OpFile, Times: 3, Hang: true})
	for i := range 3 {
		r.Submit(slow, &kind.Read{Path: "a"}, o)
		r.Eventually("the call hangs", func() bool { return r.State.Calls(fake.OpFile) > i })
	}
	if j := r.Wait(r.Submit(quick, &kind.Write{Path: "a", Content: "x"}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("the call next to them is %s: %+v", j.State, j.Error)
	}
}

// TestADeleteCostsNoHeartbeat: nor does it read more than whether what runs in its sandbox is to stop.
func TestADeleteCostsNoHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var beats atomic.Int32
	store, err := models.Open(t.Context(), r.DSN, 8, models.Limits{Window: 64}, func(_ context.Context, statement string, do func() error) error {
		if strings.Contains(statement, "INSERT INTO nodes") {
			beats.Add(1)
		}
		return do()
	})
	r.Must(err)
	t.Cleanup(func() { r.Must(store.Close()) })
	r.Worker(4, func(c *worker.Config) { c.Store, c.Lease = store, time.Hour })
	idle, busy := r.readied(), r.readied()
	sleeps := r.fill(busy, 1)[0]
	r.Eventually("the command runs", func() bool { return r.State.Starts(sleeps) == 1 })
	before := beats.Load()
	for _, box := range []string{idle, busy} {
		out, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
		r.Must(err)
		if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
			t.Fatalf("the delete is %s: %+v", j.State, j.Error)
		}
	}
	if j := r.Wait(sleeps); j.State != models.Cancelled {
		t.Errorf("the command in a sandbox that was deleted is %s", j.State)
	}
	if n := beats.Load() - before; n != 0 {
		t.Errorf("two deletes cost %d heartbeats", n)
	}
}
