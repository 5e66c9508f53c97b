package jobs_test

import (
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// TestBuildHasTheRuntimeOfItsTemplate, on the engine that builds first and on any that builds again.
func TestBuildHasTheRuntimeOfItsTemplate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Client = jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, Runtimes: []string{"runsc"},
	}, r.Log)
	r.template(models.Definition{Runtime: "runsc"})
	offers := func(c *worker.Config) { c.Runtimes = []string{"runsc"} }
	here, there := &jobsrig.Images{Held: []string{"fake"}}, &jobsrig.Images{Held: []string{"fake"}}
	_, first := r.builder(here, offers)
	if j := r.Wait(r.build("one").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	first.Stop(t.Context())
	r.builder(there, offers)
	if _, created := r.Create(jobs.CreateSandbox{Template: "t"}); r.Wait(created).State != models.Succeeded {
		t.Fatalf("create: %+v", r.Job(created).Error)
	}
	for name, e := range map[string]*jobsrig.Images{"first": here, "second": there} {
		if len(e.Made) != 1 || e.Made[0].Runtime != "runsc" {
			t.Errorf("the %s engine has built %+v", name, e.Made)
		}
	}
}

// TestWorkerRefusesARuntimeThatItDoesNotOffer: a template may have been written when others were offered. Neither builds nor
// pools run under what the operator does not allow any more.
func TestWorkerRefusesARuntimeThatItDoesNotOffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &jobsrig.Images{Held: []string{"fake"}}
	hold := make(chan struct{})
	e.Hold = hold
	r.builder(e)
	ran := r.build("one") // accepted before there is such a template
	r.Eventually("it builds", func() bool { return e.Count() == 1 })
	r.template(models.Definition{Runtime: "runc"})
	close(hold)
	if j := r.Wait(ran.Jobs[0].ID); j.State != models.Failed || !strings.Contains(j.Error.Message, "SANDBOX_RUNTIMES") {
		t.Errorf("the trial under it: %s %+v", j.State, j.Error)
	}
	if _, err := r.Client.Build(t.Context(), jobs.NewBuild{Template: "t"}, jobsrig.Options()); err == nil {
		t.Error("a build for it is accepted")
	}
}

func TestPoolHasNoRuntimeThatIsNotOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Must(r.Store.Declare(t.Context(), []models.Template{
		{Name: "python", Image: "fake-one", Definition: models.Definition{Runtime: "runc"}}, {Name: "node", Image: "fake-two"},
	}))
	p, _ := r.pooledWorker()
	r.Eventually("the pool is stocked", func() bool { return p.class("fake-two").Min == 4 })
	if c := p.class("fake-one"); c.Max != 0 {
		t.Errorf("a pool under a runtime that is not offered: %+v", c)
	}
}
