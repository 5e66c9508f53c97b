package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// Budgets of a build.
const (
	defaultBuildTimeout = 10 * time.Minute
	maxBuildTimeout     = time.Hour
	buildWait           = 24 * time.Hour // its sandbox's life, which counts from the submission
)

// Build makes an image for a template. It runs in a sandbox of its own, which is gone when it ends.
type Build struct {
	BuildID        string  `json:"build_id"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

// BuildResult is what a build's job says of it.
type BuildResult struct {
	BuildID  string `json:"build_id"`
	Template string `json:"template"`
	Image    string `json:"image" doc:"The template's new image"`
}

// NewBuild is a wish for an image.
type NewBuild struct {
	Template       string
	Shared         bool
	Recipe         dockerfile.Recipe
	Files          []byte // a tar
	Resources      providers.Resources
	TimeoutSeconds float64
}

// Kind implements Args.
func (*Build) Kind() string { return models.KindBuild }

// Validate implements Args.
func (*Build) Validate() error { return nil }

func (b *Build) timeout() time.Duration {
	return time.Duration(b.TimeoutSeconds * float64(time.Second))
}

// Build submits the making of an image. The template has it when the build has succeeded, and its old one until then.
func (c *Client) Build(ctx context.Context, n NewBuild, o Options) (models.Submitted, error) {
	timeout, err := seconds("timeout_seconds", n.TimeoutSeconds, defaultBuildTimeout, time.Second)
	if err != nil {
		return models.Submitted{}, err
	}
	if timeout > maxBuildTimeout {
		return models.Submitted{}, invalid("timeout_seconds", "must be at most %g", maxBuildTimeout.Seconds())
	}
	if n.Recipe.Script != "" && n.Recipe.From == "" {
		t, err := c.Template(ctx, o.TenantID, "")
		if err != nil {
			return models.Submitted{}, err
		}
		n.Recipe.From = t.Image
	}
	from, err := n.check()
	if err != nil {
		return models.Submitted{}, err
	}
	if err := c.images.check(ctx, o.TenantID, n.fromField(), from); err != nil {
		return models.Submitted{}, err
	}
	if err := c.checkBuildTemplate(ctx, n, o.TenantID); err != nil {
		return models.Submitted{}, err
	}
	if n.Resources.DiskMB, err = c.catalog.buildDisk(n.Resources.DiskMB); err != nil {
		return models.Submitted{}, err
	}
	n.Resources = c.catalog.buildDefaults(n.Resources)
	if err := c.fits(ctx, c.catalog.Providers[0], withoutDisk(n.Resources)); err != nil { // which is another one than a sandbox's
		return models.Submitted{}, err
	}
	box, row, err := c.buildRows(n, from, o.TenantID)
	if err != nil {
		return models.Submitted{}, err
	}
	sub := models.Submission{SandboxID: box.ID, New: box, Build: row, Timeout: buildWait}
	return c.submit(ctx, sub, []Args{&Build{BuildID: row.ID, TimeoutSeconds: timeout.Seconds()}}, o)
}

// check says what is wrong with the wish, and else what it stands on.
func (n NewBuild) check() (from string, err error) {
	if err := CheckTemplate(models.Template{Name: n.Template, Image: "any"}); err != nil {
		return "", err
	}
	limits := CreateSandbox{CPUs: n.Resources.CPUs, MemoryMB: n.Resources.MemoryMB, DiskMB: n.Resources.DiskMB, Pids: n.Resources.Pids}
	if err := limits.check(); err != nil {
		return "", err
	}
	var bad *dockerfile.Error
	if err := n.Recipe.Check(n.Files); errors.As(err, &bad) {
		return "", invalid("recipe", "%v", bad)
	} else if err != nil {
		return "", err
	}
	return n.Recipe.Base()
}

// fromField is the part of a request that names what the build stands on.
func (n NewBuild) fromField() string {
	switch {
	case n.Recipe.Dockerfile != "":
		return "dockerfile"
	case n.Recipe.Script != "":
		return "from"
	}
	return "image"
}

// checkBuildTemplate refuses a build for a template whose runtime is not offered any more, or for a new one that there is no
// room for, as it now stands.
func (c *Client) checkBuildTemplate(ctx context.Context, n NewBuild, tenant string) error {
	o := models.Owner{Tenant: tenant}
	if n.Shared {
		o = models.Owner{}
	}
	t, err := c.store.TemplateOf(ctx, o, n.Template)
	if errors.Is(err, models.ErrNotFound) {
		return c.store.TemplateRoom(ctx, o, n.Template)
	}
	if err != nil {
		return err
	}
	return c.catalog.checkRuntime("template", t.Definition.Runtime)
}

// buildRows are the sandbox that the build runs in, and the build.
func (c *Client) buildRows(n NewBuild, from, tenant string) (*models.Sandbox, *models.Build, error) {
	spec, err := json.Marshal(sandboxSpec{Resources: n.Resources})
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(n.Recipe)
	if err != nil {
		return nil, nil, err
	}
	box := &models.Sandbox{
		ID: models.NewID("sb"), TenantID: tenant, Provider: c.catalog.Providers[0], Template: &n.Template, Image: from,
		State: models.SandboxCreating, Desired: models.DesiredRunning, Spec: spec, OnTimeout: "delete", TimeoutMS: buildWait.Milliseconds(),
	}
	weigh(box, n.Resources)
	b := &models.Build{
		ID: models.NewID("bld_"), TenantID: tenant, Shared: n.Shared, Template: n.Template, SandboxID: box.ID, Recipe: text, Files: n.Files,
		Image: from,
	}
	if n.Recipe.Image == "" {
		b.Image = imageOf(b.ID)
	}
	box.Labels = map[string]string{"sandyard.build": b.ID}
	return box, b, nil
}

func (b *Build) run(ctx context.Context, a *attempt) (result, error) {
	row, err := a.w.store.BuildWithFiles(ctx, b.BuildID)
	if err != nil {
		return result{}, err
	}
	done := result{
		value:  BuildResult{BuildID: row.ID, Template: row.Template, Image: row.Image},
		change: models.Change{To: models.SandboxDeleted, Reason: "build finished"},
	}
	if row.FinishedAt != nil { // by an attempt that died before it could say so
		return done, a.w.provider.Delete(ctx, a.job.SandboxID)
	}
	box, err := a.takeSandbox(ctx)
	if err != nil {
		return result{}, err
	}
	a.slot.rest() // builds have turns of their own
	log := a.openBuildLog(ctx, row.ID)
	defer log.close()
	failed := result{settled: func(ctx context.Context) error { return a.w.provider.Delete(ctx, box.ID) }}
	if err := a.build(ctx, row, box, log); err != nil {
		fmt.Fprintf(log, "Build failed: %v\n", buildWords(ctx, err))
		return failed, err
	}
	fmt.Fprintf(log, "Built: %s\n", row.Image)
	log.flush()
	err = a.w.store.FinishBuild(ctx, a.held(), row)
	if limit := (*models.LimitError)(nil); errors.As(err, &limit) {
		fmt.Fprintf(log, "The template was not created: %v\n", limit)
		return failed, providers.Errorf(providers.BuildFailed, "the image was built, but its template was not created: %w; delete a template, or ask your operator to raise the limit, and build again", limit)
	}
	return done, err
}

func buildWords(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	return providers.AsError(err).Message
}

// build makes the image and sees that a sandbox comes up from it.
func (a *attempt) build(ctx context.Context, row models.Build, box models.Sandbox, log *buildLog) error {
	if a.job.Attempt > 1 {
		fmt.Fprintf(log, "Attempt %d starts from the beginning.\n", a.job.Attempt)
	}
	d, err := a.definition(ctx, row)
	if err != nil {
		return err
	}
	if err := a.w.makeImage(ctx, row, box, d.Runtime, log); err != nil {
		return err
	}
	fmt.Fprintln(log, "Testing the image: starting a sandbox from it.")
	if d, err = a.definition(ctx, row); err != nil { // which may have changed meanwhile
		return err
	}
	spec := providers.Spec{ID: box.ID, Image: row.Image, WorkDir: d.WorkDir, Runtime: d.Runtime, Env: d.Env, Resources: providers.Resources{
		CPUs: d.Resources.CPUs, MemoryMB: d.Resources.MemoryMB, DiskMB: d.Resources.DiskMB, Pids: d.Resources.Pids,
	}}
	if _, err := a.w.provider.Create(ctx, spec); err != nil {
		return err
	}
	if err := a.comeUp(ctx, sandboxSpec{fromTemplate: fromTemplate{Start: d.StartCommand, Ready: d.Ready}}); err != nil {
		return err
	}
	return a.w.provider.Delete(ctx, box.ID)
}

// definition is what the template gives beside its image. There may be no such template yet.
func (a *attempt) definition(ctx context.Context, row models.Build) (models.Definition, error) {
	t, err := a.w.store.TemplateOf(ctx, row.Owner(), row.Template)
	if errors.Is(err, models.ErrNotFound) {
		return models.Definition{}, nil
	}
	if err == nil {
		err = a.w.offers(t.Definition.Runtime)
	}
	return t.Definition, err
}

// makeImage carries the recipe out on this worker's engine, in place of the sandbox box and under the runtime that sandboxes
// of the image will have.
func (w *Worker) makeImage(ctx context.Context, row models.Build, box models.Sandbox, runtime string, log *buildLog) error {
	builder, ok := w.provider.(providers.Builder)
	if !ok {
		return providers.Errorf(providers.NotSupported, "provider %s cannot build images; build the image elsewhere and name it in a template", w.node.Provider)
	}
	var r dockerfile.Recipe
	if err := json.Unmarshal(row.Recipe, &r); err != nil {
		return fmt.Errorf("read the recipe: %w", err)
	}
	from, err := r.Base()
	if err != nil {
		return providers.Errorf(providers.BuildFailed, "%w", err)
	}
	if err := w.checkAgain(ctx, row.TenantID, from); err != nil {
		return err
	}
	on, err := builder.Image(ctx, from)
	if err != nil || r.Image != "" {
		return err
	}
	s, err := specOf(box)
	if err != nil {
		return err
	}
	done, err := w.builds.wait(ctx, box.TenantID, func() { fmt.Fprintln(log, "Waiting for other builds on this worker to end.") })
	if err != nil {
		return err
	}
	defer done()
	plan, err := r.Plan(on, row.Files) // which takes some times the memory of the files: not for builds that wait
	if err != nil {
		return providers.Errorf(providers.BuildFailed, "%w", err)
	}
	err = builder.Build(ctx, providers.Build{
		ID: box.ID, Image: row.Image, From: from, Steps: plan.Steps, Config: plan.Config, Labels: plan.Labels, Resources: s.Resources,
		Runtime: runtime,
	}, log)
	if gone := providers.AsError(err).Class; err != nil && (gone == providers.Lost || gone == providers.NotFound) {
		return providers.Errorf(providers.Unavailable, "the build container is gone: %w", err)
	}
	return err
}

// buildHere makes the image of a build on this worker's engine, which is not the one that it was built on first.
func (w *Worker) buildHere(ctx context.Context, box models.Sandbox, build string) error {
	done, err := w.builds.once(ctx, build) // whoever comes second finds the image
	if err != nil {
		return err
	}
	defer done()
	row, err := w.store.BuildWithFiles(ctx, build)
	if err != nil || !row.Shared && row.TenantID != box.TenantID {
		return providers.ErrImageMissing
	}
	if builder, ok := w.provider.(providers.Builder); ok {
		if _, err := builder.Image(ctx, row.Image); err == nil {
			return nil
		}
	}
	w.log.InfoContext(ctx, "rebuilding the image of a build on this engine", "build_id", build, "sandbox_id", box.ID)
	spec, err := specOf(box)
	if err != nil {
		return err
	}
	as := box
	limits := Catalog{}.buildDefaults(providers.Resources{DiskMB: defaultBuildDiskMB})
	if err := w.roomForBuild(ctx, limits); err != nil {
		return err
	}
	as.Spec, err = json.Marshal(sandboxSpec{Resources: limits})
	if err != nil {
		return err
	}
	return w.makeImage(ctx, row, as, spec.Runtime, nil)
}

// roomForBuild refuses a build that no row stands for while the engine has no room for it beside its sandboxes.
func (w *Worker) roomForBuild(ctx context.Context, r providers.Resources) error {
	load, err := w.store.Load(ctx, w.node.ID)
	if err != nil {
		return err
	}
	beside := models.NodeLoad{Node: w.node, Load: load}
	beside.MaxSandboxes = 0 // it is none
	if !beside.Fits(models.Need{CPUs: r.CPUs, MemoryMB: r.MemoryMB, Pids: r.Pids + besidePids}) {
		return providers.Errorf(providers.Capacity, "this worker has no room to rebuild the image of the sandbox's template; try again")
	}
	return nil
}
