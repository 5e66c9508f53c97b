package jobs_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/security"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// events returns how often each kind of security event has happened to the tenant.
func (r *rig) events(f models.SecurityFilter) map[string]int64 {
	r.T.Helper()
	f.Limit = 1000
	list, err := r.Store.SecurityEvents(r.T.Context(), f)
	r.Must(err)
	all := map[string]int64{}
	for _, e := range list {
		all[e.Kind] += e.Times
	}
	return all
}

// TestSecurityEventsOfWorkers: what jobs and sandboxes do that should not be.
func TestSecurityEventsOfWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := security.New(r.Store, r.Log)
	t.Cleanup(s.Close)
	r.Worker(4, func(c *worker.Config) { c.Security = s })
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	for range 5 {
		r.Wait(r.Submit(box, &kind.Exec{Command: "fake:sleep 1h", TimeoutSeconds: 0.1}, jobsrig.Options()))
		r.Wait(r.Submit(box, &kind.Read{Path: "nothing"}, jobsrig.Options())) // no fault of the sandbox
	}
	r.Wait(r.Submit(box, &kind.Read{Path: "../../etc/passwd"}, jobsrig.Options()))
	r.Wait(r.Exec(box, "fake:oom"))
	r.Eventually("the events", func() bool {
		return maps.Equal(r.events(models.SecurityFilter{Tenant: jobsrig.Tenant}), map[string]int64{models.SandboxFailing: 1, models.OutOfMemory: 1, models.PathRefused: 1})
	})
}

// TestSecurityEventsAreBounded: however many there are, a tenant has one row of a kind in a minute.
func TestSecurityEventsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := security.New(r.Store, r.Log)
	box, _ := r.Create(jobs.CreateSandbox{})
	for range 5000 {
		s.Note(models.SecurityEvent{TenantID: jobsrig.Tenant, Kind: models.LimitReached, Client: "192.0.2.1", Detail: "max_queued"})
		s.Note(models.SecurityEvent{Kind: models.KeyRefused})
	}
	s.Note(models.SecurityEvent{Kind: models.EgressDenied, SandboxID: box, Times: 7})
	s.Note(models.SecurityEvent{Kind: models.EgressDenied, SandboxID: "sb00000000000000000000000000", Times: 7}) // not there any more
	s.Close()
	list, err := r.Store.SecurityEvents(t.Context(), models.SecurityFilter{All: true, Limit: 100})
	r.Must(err)
	if len(list) > 6 { // three kinds, two minutes
		t.Errorf("%d rows", len(list))
	}
	if all := r.events(models.SecurityFilter{Tenant: jobsrig.Tenant}); all[models.LimitReached] != 5000 || all[models.EgressDenied] != 7 || len(all) != 2 {
		t.Errorf("of the tenant: %v", all)
	}
	if all := r.events(models.SecurityFilter{}); all[models.KeyRefused] != 5000 || len(all) != 1 {
		t.Errorf("of nobody: %v", all)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.Metrics())
	families, err := reg.Gather()
	r.Must(err)
	counted := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	if counted[models.KeyRefused] != 5000 || counted[models.EgressDenied] != 14 || len(counted) != len(models.SecurityKinds()) {
		t.Errorf("the metric says %v", counted)
	}
}
