package jobs_test

import (
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
)

// TestBuildHasTheRuntimeOfItsTemplate, on the engine that builds first and on any that builds again.
func TestBuildHasTheRuntimeOfItsTemplate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client = jobs.NewClient(r.store, r.queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, Runtimes: []string{"runsc"},
	}, r.log)
	r.template(models.Definition{Runtime: "runsc"})
	offers := func(c *worker.Config) { c.Runtimes = []string{"runsc"} }
	here, there := &images{held: []string{"fake"}}, &images{held: []string{"fake"}}
	_, first := r.builder(here, offers)
	if j := r.wait(r.build("one").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	first.Stop(t.Context())
	r.builder(there, offers)
	if _, created := r.create(jobs.CreateSandbox{Template: "t"}); r.wait(created).State != models.Succeeded {
		t.Fatalf("create: %+v", r.job(created).Error)
	}
	for name, e := range map[string]*images{"first": here, "second": there} {
		if len(e.made) != 1 || e.made[0].Runtime != "runsc" {
			t.Errorf("the %s engine has built %+v", name, e.made)
		}
	}
}

// TestWorkerRefusesARuntimeThatItDoesNotOffer: a template may have been written when others were offered. Neither builds nor
// pools run under what the operator does not allow any more.
func TestWorkerRefusesARuntimeThatItDoesNotOffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &images{held: []string{"fake"}}
	hold := make(chan struct{})
	e.hold = hold
	r.builder(e)
	ran := r.build("one") // accepted before there is such a template
	r.eventually("it builds", func() bool { return e.count() == 1 })
	r.template(models.Definition{Runtime: "runc"})
	close(hold)
	if j := r.wait(ran.Jobs[0].ID); j.State != models.Failed || !strings.Contains(j.Error.Message, "SANDBOX_RUNTIMES") {
		t.Errorf("the trial under it: %s %+v", j.State, j.Error)
	}
	if _, err := r.client.Build(t.Context(), jobs.NewBuild{Template: "t"}, options()); err == nil {
		t.Error("a build for it is accepted")
	}
}

func TestPoolHasNoRuntimeThatIsNotOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.store.Declare(t.Context(), []models.Template{
		{Name: "python", Image: "fake-one", Definition: models.Definition{Runtime: "runc"}}, {Name: "node", Image: "fake-two"},
	}))
	p, _ := r.pooledWorker()
	r.eventually("the pool is stocked", func() bool { return p.class("fake-two").Min == 4 })
	if c := p.class("fake-one"); c.Max != 0 {
		t.Errorf("a pool under a runtime that is not offered: %+v", c)
	}
}
