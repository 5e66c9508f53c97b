package jobs_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs"
	"sandyard/jobs/node"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
	"sandyard/providers/fake"
)

// builder is the fake provider with images that it remembers.
type builder struct {
	*fake.Provider
	engine *images
}

type images struct {
	mu     sync.Mutex
	held   []string
	builds int
	fails  int           // so many builds fail in a way that may pass
	hold   chan struct{} // builds wait for its end
	made   []providers.Build
}

func (b *builder) Image(_ context.Context, name string) (providers.ImageConfig, error) {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	if !slices.Contains(b.engine.held, name) {
		return providers.ImageConfig{}, providers.ErrImageMissing
	}
	return providers.ImageConfig{}, nil
}

func (b *builder) Build(ctx context.Context, build providers.Build, log io.Writer) error {
	fmt.Fprintln(log, "building on", build.From)
	b.engine.mu.Lock()
	b.engine.builds++
	b.engine.made = append(b.engine.made, build)
	fails := b.engine.fails > 0
	b.engine.fails--
	hold := b.engine.hold
	b.engine.mu.Unlock()
	if fails {
		return providers.Errorf(providers.Unavailable, "the engine is away")
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return providers.Errorf(providers.Unavailable, "given up: %w", ctx.Err())
		}
	}
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	b.engine.held = append(b.engine.held, build.Image)
	return nil
}

// Create makes sandboxes of every image that was built, as the fake provider does of those it likes.
func (b *builder) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	if _, err := b.Image(ctx, spec.Image); err != nil {
		return providers.Instance{}, err
	}
	spec.Image = "fake"
	return b.Provider.Create(ctx, spec)
}

func (b *builder) Built(context.Context) ([]string, error) {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.engine.held), func(held string) bool { return held == "fake" }), nil
}

func (b *builder) RemoveImage(_ context.Context, name string) error {
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	if strings.HasSuffix(name, "stuck") {
		return providers.Errorf(providers.Internal, "it cannot be removed")
	}
	b.engine.held = slices.DeleteFunc(b.engine.held, func(held string) bool { return held == name })
	return nil
}

func (r *rig) builder(e *images, change ...func(*worker.Config)) (*builder, *worker.Worker) {
	r.t.Helper()
	p := &builder{Provider: fake.New(fake.Options{State: r.state, PerNode: true}), engine: e}
	c := worker.Config{
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: p, Engine: rText(e), Slots: 4,
		Lease: 3 * time.Second, Grace: 5 * time.Second, Webhooks: r.hooks, Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: r.log,
	}
	for _, f := range change {
		f(&c)
	}
	w := worker.New(c)
	r.must(w.Start(r.t.Context()))
	r.t.Cleanup(func() {
		w.Stop(context.Background())
		r.must(p.Close())
	})
	return p, w
}

func rText(e *images) string { return fmt.Sprintf("%p", e) }

func (r *rig) build(script string) models.Submitted {
	r.t.Helper()
	return r.buildAs(tenant, script)
}

func (r *rig) buildAs(tenant, script string) models.Submitted {
	r.t.Helper()
	o := options()
	o.TenantID = tenant
	out, err := r.client.Build(r.t.Context(), jobs.NewBuild{Template: "t", Recipe: dockerfile.Recipe{Script: script, From: "fake"}}, o)
	r.must(err)
	return out
}

func (r *rig) image() string {
	r.t.Helper()
	t, err := r.store.Template(r.t.Context(), tenant, "t")
	r.must(err)
	return t.Image
}

func TestBuildIsTriedAgainAndPruned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &images{held: []string{"fake"}, fails: 1}
	p, _ := r.builder(e)
	first := r.build("one")
	if j := r.wait(first.Jobs[0].ID); j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("the build ended %s in attempt %d: %+v", j.State, j.Attempt, j.Error)
	}
	old := r.image()
	box, created := r.create(jobs.CreateSandbox{Template: "t"})
	if j := r.wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %+v", j.Error)
	}
	if b := r.sandbox(first.Sandbox.ID); b.State != models.SandboxDeleted {
		t.Errorf("the build's sandbox is %s", b.State)
	}
	if j := r.wait(r.build("two").Jobs[0].ID); j.State != models.Succeeded || r.image() == old {
		t.Fatalf("the second build: %s %+v", j.State, j.Error)
	}
	prune := func(removed int, want ...string) {
		t.Helper()
		n, err := node.PruneImages(t.Context(), r.store, p)
		r.must(err)
		if n != removed {
			t.Errorf("%d images are counted, want %d", n, removed)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if !slices.Equal(e.held, want) {
			t.Errorf("held are %v, want %v", e.held, want)
		}
	}
	prune(0, "fake", old, r.image())
	gone, err := r.client.Delete(t.Context(), box, false, options())
	r.must(err)
	r.wait(gone.Jobs[0].ID)
	prune(1, "fake", r.image())
	e.mu.Lock()
	e.held = append(e.held, "sandyard/build:bld_that_is_forgotten") // while this engine was away
	e.mu.Unlock()
	prune(1, "fake", r.image())
}

// TestAnImageThatCannotBeRemovedKeepsNoOther from being removed.
func TestAnImageThatCannotBeRemovedKeepsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &images{held: []string{"fake"}}
	for n := range 5 {
		e.held = append(e.held, fmt.Sprintf("sandyard/build:bld_%d_stuck", n))
	}
	e.held = append(e.held, "sandyard/build:bld_gone")
	p := &builder{Provider: fake.New(fake.Options{State: r.state, PerNode: true}), engine: e} // no worker removes any meanwhile
	t.Cleanup(func() { r.must(p.Close()) })
	n, err := node.PruneImages(t.Context(), r.store, p)
	if n != 1 || err == nil || !strings.HasSuffix(err.Error(), "5 in all") {
		t.Errorf("%d images were removed, and %v", n, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.held, "sandyard/build:bld_gone") {
		t.Error("the one that nobody needs is left")
	}
}

// TestBuildsHaveNoMoreTemplatesThanTheQuota: two were accepted while there was room for one.
func TestBuildsHaveNoMoreTemplatesThanTheQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sql("UPDATE tenants SET max_templates = 1")
	var ids []string
	for _, name := range []string{"one", "two"} {
		out, err := r.client.Build(t.Context(), jobs.NewBuild{Template: name, Recipe: dockerfile.Recipe{Script: "x", From: "fake"}}, options())
		r.must(err)
		ids = append(ids, out.Jobs[0].ID)
	}
	r.builder(&images{held: []string{"fake"}})
	ended := map[models.JobState]int{}
	for _, id := range ids {
		j := r.wait(id)
		ended[j.State]++
		if j.State == models.Failed && (j.Error.Code != string(providers.BuildFailed) || !strings.Contains(j.Error.Message, "max_templates") || j.Attempt != 1) {
			t.Errorf("it failed in attempt %d: %+v", j.Attempt, j.Error)
		}
		if b := r.sandbox(j.SandboxID); !b.Ended() {
			t.Errorf("its sandbox is %s", b.State)
		}
	}
	if ended[models.Succeeded] != 1 || ended[models.Failed] != 1 {
		t.Errorf("they ended %v", ended)
	}
	if names, err := r.store.TemplateNames(t.Context(), tenant, 10); err != nil || len(names) != 1 {
		t.Errorf("there are templates %v, %v", names, err)
	}
}

func TestBuildIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := &images{held: []string{"fake"}, hold: make(chan struct{})}
	r.builder(e)
	out := r.build("slow")
	r.eventually("it builds", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.builds == 1
	})
	_, err := r.client.Cancel(t.Context(), tenant, out.Jobs[0].ID, "test")
	r.must(err)
	if j := r.wait(out.Jobs[0].ID); j.State != models.Cancelled {
		t.Errorf("it ended %s: %+v", j.State, j.Error)
	}
	if b := r.sandbox(out.Sandbox.ID); b.State != models.SandboxFailed {
		t.Errorf("its sandbox is %s", b.State)
	}
	if _, err := r.store.Template(t.Context(), tenant, "t"); err == nil {
		t.Error("there is a template all the same")
	}
}

func TestBuiltImageIsMadeOnEveryEngineThatNeedsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	here, there := &images{held: []string{"fake"}}, &images{held: []string{"fake"}}
	_, first := r.builder(here)
	if j := r.wait(r.build("one").Jobs[0].ID); j.State != models.Succeeded {
		t.Fatalf("the build: %+v", j.Error)
	}
	first.Stop(context.Background())
	r.builder(there)
	for range 2 {
		if _, created := r.create(jobs.CreateSandbox{Template: "t"}); r.wait(created).State != models.Succeeded {
			t.Fatalf("create: %+v", r.job(created).Error)
		}
	}
	if here.builds != 1 || there.builds != 1 {
		t.Errorf("built %d times on the first engine and %d times on the second", here.builds, there.builds)
	}
}
