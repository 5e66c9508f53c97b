package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/node"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
	"sandyard/providers/fake"
)

func (r *rig) builder(e *jobsrig.Images, change ...func(*worker.Config)) (*jobsrig.Builder, *worker.Worker) {
	r.T.Helper()
	p := &jobsrig.Builder{Provider: fake.New(fake.Options{State: r.State, PerNode: true}), Engine: e}
	own := func(c *worker.Config) { c.Engine, c.Lease = fmt.Sprintf("%p", e), 3*time.Second }
	return p, r.WorkerWith(p, 4, append([]func(*worker.Config){own}, change...)...)
}

func (r *rig) build(script string) models.Submitted {
	r.T.Helper()
	return r.buildAs(jobsrig.Tenant, script)
}

func (r *rig) buildAs(tenant, script string) models.Submitted {
	r.T.Helper()
	o := jobsrig.Options()
	o.TenantID = tenant
	out, err := r.Client.Build(r.T.Context(), jobs.NewBuild{Template: "t", Recipe: dockerfile.Recipe{Script: script, From: "fake"}}, o)
	r.Must(err)
	return out
}

func (r *rig) image() string {
	r.T.Helper()
	t, err := r.Store.Template(r.T.Context(), jobsrig.Tenant, "t")
	r.Must(err)
	return t.Image
}

func TestBuildIsTriedAgainAndPruned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &jobsrig.Images{Held: []string{"fake"}, Fails: 1}
	p, _ := r.builder(e)
	first := r.build("one")
	if j := r.Wait(first.Jobs[0].ID); j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("the build ended %s in attempt %d: %+v", j.State, j.Attempt, j.Error)
	}
	old := r.image()
	box, created := r.Create(jobs.CreateSandbox{Template: "t"})
	if j := r.Wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %+v", j.Error)
	}
	if b := r.Sandbox(first.Sandbox.ID); b.State != models.SandboxDeleted {
		t.Errorf("the build's sandbox is %s", b.State)
	}
	if j := r.Wait(r.build("two").Jobs[0].ID); j.State != models.Succeeded || r.image() == old {
		t.Fatalf("the second build: %s %+v", j.State, j.Error)
	}
	prune := func(removed int, want ...string) {
		t.Helper()
		n, err := node.PruneImages(t.Context(), r.Store, p)
		r.Must(err)
		if n != removed {
			t.Errorf("%d images are counted, want %d", n, removed)
		}
		e.Mu.Lock()
		defer e.Mu.Unlock()
		if !slices.Equal(e.Held, want) {
			t.Errorf("held are %v, want %v", e.Held, want)
		}
	}
	prune(0, "fake", old, r.image())
	gone, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
	r.Must(err)
	r.Wait(gone.Jobs[0].ID)
	prune(1, "fake", r.image())
	e.Mu.Lock()
	e.Held = append(e.Held, "sandyard/build:bld_that_is_forgotten") // while this engine was away
	e.Mu.Unlock()
	prune(1, "fake", r.image())
}

// TestAnImageThatCannotBeRemovedKeepsNoOther from being removed.
func TestAnImageThatCannotBeRemovedKeepsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &jobsrig.Images{Held: []string{"fake"}}
	for n := range 5 {
		e.Held = append(e.Held, fmt.Sprintf("sandyard/build:bld_%d_stuck", n))
	}
	e.Held = append(e.Held, "sandyard/build:bld_gone")
	p := &jobsrig.Builder{Provider: fake.New(fake.Options{State: r.State, PerNode: true}), Engine: e} // no worker removes any meanwhile
	t.Cleanup(func() { r.Must(p.Close()) })
	n, err := node.PruneImages(t.Context(), r.Store, p)
	if n != 1 || err == nil || !strings.HasSuffix(err.Error(), "5 in all") {
		t.Errorf("%d images were removed, and %v", n, err)
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if slices.Contains(e.Held, "sandyard/build:bld_gone") {
		t.Error("the one that nobody needs is left")
	}
}

// TestBuildsHaveNoMoreTemplatesThanTheQuota: two were accepted while there was room for one.
func TestBuildsHaveNoMoreTemplatesThanTheQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL("UPDATE tenants SET max_templates = 1")
	var ids []string
	for _, name := range []string{"one", "two"} {
		out, err := r.Client.Build(t.Context(), jobs.NewBuild{Template: name, Recipe: dockerfile.Recipe{Script: "x", From: "fake"}}, jobsrig.Options())
		r.Must(err)
		ids = append(ids, out.Jobs[0].ID)
	}
	r.builder(&jobsrig.Images{Held: []string{"fake"}})
	ended := map[models.JobState]int{}
	for _, id := range ids {
		j := r.Wait(id)
		ended[j.State]++
		if j.State == models.Failed && (j.Error.Code != string(providers.BuildFailed) || !strings.Contains(j.Error.Message, "max_templates") || j.Attempt != 1) {
			t.Errorf("it failed in attempt %d: %+v", j.Attempt, j.Error)
		}
		if b := r.Sandbox(j.SandboxID); !b.Ended() {
			t.Errorf("its sandbox is %s", b.State)
		}
	}
	if ended[models.Succeeded] != 1 || ended[models.Failed] != 1 {
		t.Errorf("they ended %v", ended)
	}
	if names, err := r.Store.TemplateNames(t.Context(), jobsrig.Tenant, 10); err != nil || len(names) != 1 {
		t.Errorf("there are templates %v, %v", names, err)
	}
}

func TestBuildIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &jobsrig.Images{Held: []string{"fake"}, Hold: make(chan struct{})}
	r.builder(e)
	out := r.build("slow")
	r.Eventually("it builds", func() bool {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		return e.Builds == 1
	})
	_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, out.Jobs[0].ID, "test")
	r.Must(err)
	if j := r.Wait(out.Jobs[0].ID); j.State != models.Cancelled {
		t.Errorf("it ended %s: %+v", j.State, j.Error)
	}
	if b := r.Sandbox(out.Sandbox.ID); b.State != models.SandboxFailed {
		t.Errorf("its sandbox is %s", b.State)
	}
	if _, err := r.Store.Template(t.Context(), jobsrig.Tenant, "t"); err == nil {
		t.Error("there is a template all the same")
	}
}

func TestBuiltImageIsMadeOnEveryEngineThatNeedsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	here, there := &jobsrig.Images{Held: []string{"fake"}}, &jobsrig.Images{Held: []string{"fake"}}
	_, first := r.builder(here)
	if j := r.Wait(r.build("one").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	first.Stop(context.Background())
	r.builder(there)
	for range 2 {
		if _, created := r.Create(jobs.CreateSandbox{Template: "t"}); r.Wait(created).State != models.Succeeded {
			t.Fatalf("create: %+v", r.Job(created).Error)
		}
	}
	if here.Builds != 1 || there.Builds != 1 {
		t.Errorf("built %d times on the first engine and %d times on the second", here.Builds, there.Builds)
	}
}
