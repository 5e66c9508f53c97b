package jobs_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
)

// neighbour makes a second tenant and returns its options.
func (r *rig) neighbour() jobs.Options {
	r.t.Helper()
	r.sql(`INSERT INTO tenants (id, name, max_sandboxes, webhook_secret) VALUES ('neighbour', 'neighbour', 100, 'whsec_') ON CONFLICT DO NOTHING`)
	return jobs.Options{TenantID: "neighbour", Actor: "neighbour"}
}

// fill has as many commands sleep in the sandbox, next to each other.
func (r *rig) fill(box string, n int) (ids []string) {
	r.t.Helper()
	o := options()
	o.Parallel = true
	for range n {
		ids = append(ids, r.submit(box, &kind.Exec{Command: "fake:sleep 1h", TimeoutSeconds: 86400}, o))
	}
	return ids
}

// ended waits for the end of a neighbour's job.
func (r *rig) ended(o jobs.Options, id string) models.Job {
	r.t.Helper()
	j, err := r.waiters.Wait(r.t.Context(), o.TenantID, id, patience)
	r.must(err)
	if j.State != models.Succeeded {
		r.t.Fatalf("the %s of %s is %s after %v: %+v", j.Kind, o.TenantID, j.State, patience, j.Error)
	}
	return j
}

// TestCommandsThatWaitHoldNoSlot: neither another tenant nor the tenant's own timeouts wait for them.
func TestCommandsThatWaitHoldNoSlot(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	r.scheduler()
	a := r.readied()
	for _, id := range r.fill(a, 8) {
		r.eventually("all commands run", func() bool { return r.state.Starts(id) == 1 })
	}
	next := r.neighbour()
	out, err := r.client.Create(t.Context(), jobs.CreateSandbox{}, next)
	r.must(err)
	r.ended(next, out.Jobs[0].ID)
	for _, args := range []kind.Args{&kind.Write{Path: "a", Content: "x"}, &kind.Read{Path: "a"}, &kind.Exec{Command: "fake:stdout x"}} {
		out, err := r.client.Submit(t.Context(), out.Sandbox.ID, args, next)
		r.must(err)
		r.ended(next, out.Jobs[0].ID)
	}
	short, _ := r.create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.eventually("the timeout deletes", func() bool { return r.sandbox(short).State == models.SandboxDeleted })
}

// TestSlowSandboxesHoldNoSlot: calls that a sandbox leaves unanswered give their slots back.
func TestSlowSandboxesHoldNoSlot(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.worker(1)
	slow, quick := r.readied(), r.readied()
	o := options()
	o.Parallel = true
	r.state.Inject(fake.Fault{Op: fake.OpFile, Times: 3, Hang: true})
	for i := range 3 {
		r.submit(slow, &kind.Read{Path: "a"}, o)
		r.eventually("the call hangs", func() bool { return r.state.Calls(fake.OpFile) > i })
	}
	if j := r.wait(r.submit(quick, &kind.Write{Path: "a", Content: "x"}, options())); j.State != models.Succeeded {
		t.Fatalf("the call next to them is %s: %+v", j.State, j.Error)
	}
}

// TestADeleteCostsNoHeartbeat: nor does it read more than whether what runs in its sandbox is to stop.
func TestADeleteCostsNoHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var beats atomic.Int32
	store, err := models.Open(t.Context(), r.dsn, 8, models.Limits{Window: 64}, func(_ context.Context, statement string, do func() error) error {
		if strings.Contains(statement, "INSERT INTO nodes") {
			beats.Add(1)
		}
		return do()
	})
	r.must(err)
	t.Cleanup(func() { r.must(store.Close()) })
	r.worker(4, func(c *worker.Config) { c.Store, c.Lease = store, time.Hour })
	idle, busy := r.readied(), r.readied()
	sleeps := r.fill(busy, 1)[0]
	r.eventually("the command runs", func() bool { return r.state.Starts(sleeps) == 1 })
	before := beats.Load()
	for _, box := range []string{idle, busy} {
		out, err := r.client.Delete(t.Context(), box, true, options())
		r.must(err)
		if j := r.wait(out.Jobs[0].ID); j.State != models.Succeeded {
			t.Fatalf("the delete is %s: %+v", j.State, j.Error)
		}
	}
	if j := r.wait(sleeps); j.State != models.Cancelled {
		t.Errorf("the command in a sandbox that was deleted is %s", j.State)
	}
	if n := beats.Load() - before; n != 0 {
		t.Errorf("two deletes cost %d heartbeats", n)
	}
}
