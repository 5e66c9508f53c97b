package jobs_test

import (
	"sync"
	"testing"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/worker"
)

// outside notes which policies hold for the sandboxes that it is said to serve.
type outside struct {
	mu     sync.Mutex
	served []string
	holds  map[string]egress.Policy
}

func (o *outside) Apply(sandbox string, p egress.Policy) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds[sandbox] = p
}

func (o *outside) Served() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.served...)
}

func (o *outside) Report(func([]egress.Usage) error) error { return nil }

// serve pretends that somebody has read a policy before it was changed.
func (o *outside) serve(sandbox string, p egress.Policy) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.served, o.holds[sandbox] = append(o.served, sandbox), p
}

func (o *outside) policy(sandbox string) egress.Policy {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holds[sandbox]
}

// TestANetworkThatWasTakenAwayIsGone also for a worker that had read the policy before, and whose sandbox has none now.
func TestANetworkThatWasTakenAwayIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := &outside{holds: map[string]egress.Policy{}}
	r.Worker(2, func(c *worker.Config) { c.Egress = o })
	off, job := r.Create(jobs.CreateSandbox{})
	r.Wait(job)
	on, job := r.Create(jobs.CreateSandbox{})
	r.Wait(job)
	r.SQL(`UPDATE sandboxes SET egress = '{"allow": ["*"]}', node_id = NULL WHERE id = $1`, on) // it is another's by its row
	o.serve(off, egress.Public())
	o.serve(on, egress.Policy{})
	r.Eventually("what was taken away is gone", func() bool { return o.policy(off).Off() })
	r.Eventually("what a row allows holds", func() bool { return !o.policy(on).Off() })
}
