package jobs_test

import (
	"testing"

	"sandyard/dev/jobsrig"
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
	r.Client = jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake", "other"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"},
	}, r.Log)
	r.Worker(4)
	left := r.Worker(4, func(c *worker.Config) {
		inner, _ := c.Provider.(*fake.Provider)
		c.Provider, c.Engine = other{inner}, ""
	})
	here := r.readied()
	there, created := r.Create(jobs.CreateSandbox{Provider: "other"})
	if j := r.Wait(created); j.State != models.Succeeded {
		t.Fatalf("create there: %s %+v", j.State, j.Error)
	}
	left.Stop(t.Context())
	beside := jobsrig.Options()
	beside.Parallel = true
	var waiting string
	for range 3 * 64 { // its window is 64
		waiting = r.Submit(there, &kind.Exec{Command: "fake:stdout there"}, beside)
	}
	for range 2 {
		if j := r.Wait(r.Exec(here, "fake:stdout here")); string(j.Stdout) != "here" {
			t.Errorf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
		}
	}
	if j := r.Job(waiting); j.State != models.Queued {
		t.Errorf("a job that nobody works for is %s", j.State)
	}
}
