package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// checkAgain refuses on a worker what check refuses at submission: a job may come from an API that knew no check, and
// what is allowed may have changed since.
func (w *Worker) checkAgain(ctx context.Context, tenantID, image string) error {
	why, err := w.images.Refusal(ctx, tenantID, image)
	if err == nil && why != "" {
		return providers.Invalid.Errorf("image: %s", why)
	}
	return err
}

func runBuild(ctx context.Context, a *attempt, b *kind.Build) (result, error) {
	row, err := a.w.store.BuildWithFiles(ctx, b.BuildID)
	if err != nil {
		return result{}, err
	}
	done := result{
		value:  kind.BuildResult{BuildID: row.ID, Template: row.Template, Image: row.Image},
		change: models.Transition{To: models.SandboxDeleted, Reason: "build finished"},
	}
	if row.FinishedAt != nil { // by an attempt that died before it could say so
		return done, a.w.provider.Delete(ctx, a.job.SandboxID)
	}
	box, err := a.takeSandbox(ctx)
	if err != nil {
		return result{}, err
	}
	a.slot.Rest() // builds have turns of their own
	log := a.openBuildLog(ctx, row.ID)
	defer log.close()
	failed := result{afterCommit: func(ctx context.Context) error { return a.w.provider.Delete(ctx, box.ID) }}
	if err := a.build(ctx, row, box, log); err != nil {
		fmt.Fprintf(log, "Build failed: %v\n", buildWords(ctx, err))
		return failed, err
	}
	fmt.Fprintf(log, "Built: %s\n", row.Image)
	log.flush()
	err = a.w.store.FinishBuild(ctx, a.held(), row)
	if limit, ok := errors.AsType[*models.LimitError](err); ok {
		fmt.Fprintf(log, "The template was not created: %v\n", limit)
		return failed, providers.BuildFailed.Errorf(
			"the image was built, but its template was not created: %w; delete a template, or ask your operator to raise the "+
				"limit, and build again",
			limit,
		)
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
	s, err := kind.SpecOf(box)
	if err != nil {
		return err
	}
	if err := a.w.makeImage(ctx, row, box, s.Resources, d.Runtime, log); err != nil {
		return err
	}
	fmt.Fprintln(log, "Testing the image: starting a sandbox from it.")
	if d, err = a.definition(ctx, row); err != nil { // which may have changed meanwhile
		return err
	}
	spec := providers.Spec{
		ID:        box.ID,
		Image:     row.Image,
		WorkDir:   d.WorkDir,
		Runtime:   d.Runtime,
		Env:       d.Env,
		Resources: providers.Resources(d.Resources),
	}
	if _, err := a.w.provider.Create(ctx, spec); err != nil {
		return err
	}
	if err := a.comeUp(ctx, kind.Spec{FromTemplate: kind.FromTemplate{
		Start: d.StartCommand,
		Ready: d.Ready,
	}}); err != nil {
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

// makeImage carries the recipe out on this worker's engine, in place of the sandbox box and under the runtime that
// sandboxes of the image will have.
func (w *Worker) makeImage(
	ctx context.Context,
	row models.Build,
	box models.Sandbox,
	limits providers.Resources,
	runtime string,
	log *buildLog,
) error {
	builder, ok := w.provider.(providers.Builder)
	if !ok {
		return providers.NotSupported.Errorf(
			"provider %s cannot build images; build the image elsewhere and name it in a template",
			w.node.Provider,
		)
	}
	var r dockerfile.Recipe
	if err := json.Unmarshal(row.Recipe, &r); err != nil {
		return fmt.Errorf("read the recipe: %w", err)
	}
	from, err := r.Base()
	if err != nil {
		return providers.BuildFailed.Errorf("%w", err)
	}
	if err := w.checkAgain(ctx, row.TenantID, from); err != nil {
		return err
	}
	on, err := builder.Image(ctx, from)
	if err != nil || r.Image != "" {
		return err
	}
	waits := func() { fmt.Fprintln(log, "Waiting for other builds on this worker to end.") }
	turn, err := w.builds.Take(ctx, box.TenantID, waits)
	if err != nil {
		return err
	}
	defer turn.End()
	plan, err := r.Plan(on, row.Files) // which takes some times the memory of the files: not for builds that wait
	if err != nil {
		return providers.BuildFailed.Errorf("%w", err)
	}
	err = builder.Build(ctx, providers.Build{
		ID: box.ID, Image: row.Image, From: from, Steps: plan.Steps, Config: plan.Config, Labels: plan.Labels,
		Resources: limits,
		Runtime:   runtime,
	}, log)
	if gone := providers.AsError(err).Class; err != nil && (gone == providers.Lost || gone == providers.NotFound) {
		return providers.Unavailable.Errorf("the build container is gone: %w", err)
	}
	return err
}

// buildHere makes the image of a build on this worker's engine, which is not the one that it was built on first.
func (w *Worker) buildHere(ctx context.Context, box models.Sandbox, spec kind.Spec) error {
	done, err := w.rebuilds.Lock(ctx, spec.Build) // whoever comes second finds the image
	if err != nil {
		return err
	}
	defer done()
	row, err := w.store.BuildWithFiles(ctx, spec.Build)
	if err != nil || !row.Shared && row.TenantID != box.TenantID {
		return providers.ErrImageMissing
	}
	if builder, ok := w.provider.(providers.Builder); ok {
		if _, err := builder.Image(ctx, row.Image); err == nil {
			return nil
		}
	}
	w.log.InfoContext(ctx, "rebuilding the image of a build on this engine", "build_id", spec.Build, "sandbox_id", box.ID)
	limits := kind.BuildResources(providers.Resources{DiskMB: kind.BuildDiskMB}, models.Bounds{})
	if err := w.roomForBuild(ctx, limits); err != nil {
		return err
	}
	return w.makeImage(ctx, row, box, limits, spec.Runtime, nil)
}

// roomForBuild refuses a build that no row stands for while the engine has no room for it beside its sandboxes.
func (w *Worker) roomForBuild(ctx context.Context, r providers.Resources) error {
	load, err := w.store.Load(ctx, w.node.ID)
	if err != nil {
		return err
	}
	beside := models.NodeLoad{Node: w.node, Load: load}
	beside.MaxSandboxes = 0 // it is none
	if !beside.Fits(models.Need{CPUs: r.CPUs, MemoryMB: r.MemoryMB, Pids: r.Pids + kind.BesidePids}) {
		return providers.Capacity.Errorf(
			"this worker has no room to rebuild the image of the sandbox's template; try again",
		)
	}
	return nil
}

// offers refuses a template's runtime that this worker's configuration does not name: it may have named it once.
func (w *Worker) offers(runtime string) error {
	if runtime == "" || slices.Contains(w.runtimes, runtime) {
		return nil
	}
	return providers.Invalid.Errorf(
		"the template's runtime %.80q is not in SANDBOX_RUNTIMES of this worker; give the template "+
			"another one or none",
		runtime,
	)
}
