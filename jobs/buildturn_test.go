package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
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
	r.SQL(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_eA==')`)
	hold := make(chan struct{})
	e := &jobsrig.Images{Held: []string{"fake"}, Hold: hold}
	r.builder(e, func(c *worker.Config) { c.Builds = 2 })
	first := r.build("one")
	r.Eventually("it builds", func() bool { return e.Count() == 1 })
	second := r.build("two")
	r.Eventually("the tenant's second build waits", func() bool { return strings.Contains(r.buildLog(second), "Waiting for other builds") })
	e.Mu.Lock()
	e.Hold = nil // whoever begins now is not held
	e.Mu.Unlock()
	others := r.buildAs("other", "three")
	r.Eventually("another tenant's build ends", func() bool {
		j, err := r.Store.Job(t.Context(), "other", others.Jobs[0].ID)
		r.Must(err)
		return j.State == models.Succeeded
	})
	if n := e.Count(); n != 2 {
		t.Errorf("%d have begun, and the tenant's second was to wait for its first", n)
	}
	close(hold)
	for _, b := range []models.Submitted{first, second} {
		if j := r.Wait(b.Jobs[0].ID); j.State != models.Succeeded {
			t.Errorf("a build ended %s: %+v", j.State, j.Error)
		}
	}
}

func (r *rig) buildLog(b models.Submitted) string {
	r.T.Helper()
	row, err := r.Store.BuildOfJob(r.T.Context(), b.Jobs[0].ID)
	r.Must(err)
	chunks, err := r.Store.BuildLog(r.T.Context(), row.ID, 0)
	r.Must(err)
	var text strings.Builder
	for _, c := range chunks {
		text.Write(c.Data)
	}
	return text.String()
}

func TestBuildAsksForNoMoreDiskThanTheServerAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Client = jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, BuildDiskMB: 2048,
	}, r.Log)
	wish := jobs.NewBuild{Template: "t", Recipe: dockerfile.Recipe{Script: "true", From: "fake"}, Resources: providers.Resources{DiskMB: 2049}}
	var invalid *kind.InvalidError
	if _, err := r.Client.Build(t.Context(), wish, jobsrig.Options()); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "at most 2048") {
		t.Errorf("more: %v", err)
	}
	e := &jobsrig.Images{Held: []string{"fake"}}
	r.builder(e)
	if j := r.Wait(r.build("true").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	if got := e.Made[0].Resources.DiskMB; got != 2048 {
		t.Errorf("one that does not say may add %d MB", got)
	}
}
