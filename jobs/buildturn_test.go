package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// TestBuildsOfOneTenantLeaveTurnsToOthers: one tenant's builds that do not end keep another's from nothing.
func TestBuildsOfOneTenantLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sql(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_eA==')`)
	hold := make(chan struct{})
	e := &images{held: []string{"fake"}, hold: hold}
	r.builder(e, func(c *worker.Config) { c.Builds = 2 })
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

func TestBuildAsksForNoMoreDiskThanTheServerAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client = jobs.NewClient(r.store, r.queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, BuildDiskMB: 2048,
	}, r.log)
	wish := jobs.NewBuild{Template: "t", Recipe: dockerfile.Recipe{Script: "true", From: "fake"}, Resources: providers.Resources{DiskMB: 2049}}
	var invalid *kind.InvalidError
	if _, err := r.client.Build(t.Context(), wish, options()); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "at most 2048") {
		t.Errorf("more: %v", err)
	}
	e := &images{held: []string{"fake"}}
	r.builder(e)
	if j := r.wait(r.build("true").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	if got := e.made[0].Resources.DiskMB; got != 2048 {
		t.Errorf("one that does not say may add %d MB", got)
	}
}
