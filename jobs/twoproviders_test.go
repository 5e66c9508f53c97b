package jobs_test

import (
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// other is a provider of another name.
type other struct{ *fake.Provider }

func (p other) Capabilities() providers.Capabilities {
	c := p.Provider.Capabilities()
	c.Provider, c.PerNode = "other", false
	return c
}

// TestAProviderThatNobodyWorksForFillsNoWindow: a tenant has more jobs for it than its window holds, and those for another
// provider run all the same.
func TestAProviderThatNobodyWorksForFillsNoWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client = jobs.NewClient(r.store, r.queue, jobs.Catalog{
		Providers: []string{"fake", "other"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"},
	}, r.log)
	r.worker(4)
	left := r.worker(4, func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider, c.Engine = other{inner}, ""
	})
	here := r.readied()
	there, created := r.create(jobs.CreateSandbox{Provider: "other"})
	if j := r.wait(created); j.State != models.Succeeded {
		t.Fatalf("create there: %s %+v", j.State, j.Error)
	}
	left.Stop(t.Context())
	beside := options()
	beside.Parallel = true
	var waiting string
	for range 3 * 64 { // its window is 64
		waiting = r.submit(there, &kind.Exec{Command: "fake:stdout there"}, beside)
	}
	for range 2 {
		if j := r.wait(r.exec(here, "fake:stdout here")); string(j.Stdout) != "here" {
			t.Errorf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
		}
	}
	if j := r.job(waiting); j.State != models.Queued {
		t.Errorf("a job that nobody works for is %s", j.State)
	}
}
