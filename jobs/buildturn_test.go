package jobs_test

import (
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/models"
)

// TestBuildsOfOneTenantLeaveTurnsToOthers: one tenant's builds that do not end keep another's from nothing.
func TestBuildsOfOneTenantLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sql(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_eA==')`)
	hold := make(chan struct{})
	e := &images{held: []string{"fake"}, hold: hold}
	r.builder(e, func(c *jobs.WorkerConfig) { c.Builds = 2 })
	first := r.build("one")
	r.eventually("it builds", func() bool { return e.count() == 1 })
	second := r.build("two")
	r.eventually("the tenant's second build waits", func() bool { return strings.Contains(r.buildLog(second), "Waiting for other builds") })
	e.mu.Lock()
	e.hold = nil // whoever begins now is not held
	e.mu.Unlock()
	others := r.buildAs("other", "three")
	r.eventually("another tenant's build ends", func() bool {
		j, err := r.store.Job(t.Context(), "other", others.Jobs[0].ID)
		r.must(err)
		return j.State == models.Succeeded
	})
	if n := e.count(); n != 2 {
		t.Errorf("%d have begun, and the tenant's second was to wait for its first", n)
	}
	close(hold)
	for _, b := range []models.Submitted{first, second} {
		if j := r.wait(b.Jobs[0].ID); j.State != models.Succeeded {
			t.Errorf("a build ended %s: %+v", j.State, j.Error)
		}
	}
}

// count is how many builds have begun.
func (e *images) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.builds
}

func (r *rig) buildLog(b models.Submitted) string {
	r.t.Helper()
	row, err := r.store.BuildOfJob(r.t.Context(), b.Jobs[0].ID)
	r.must(err)
	chunks, err := r.store.BuildLog(r.t.Context(), row.ID, 0)
	r.must(err)
	var text strings.Builder
	for _, c := range chunks {
		text.Write(c.Data)
	}
	return text.String()
}
