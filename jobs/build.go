package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"sandyard/jobs/imagepolicy"
	"sandyard/jobs/kind"
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

// NewBuild is a wish for an image.
type NewBuild struct {
	Template       string
	Shared         bool
	Recipe         dockerfile.Recipe
	Files          []byte // a tar
	Resources      providers.Resources
	TimeoutSeconds float64
}

// Build submits the making of an image. The template has it when the build has succeeded, and its old one until then.
func (c *Client) Build(ctx context.Context, n NewBuild, o Options) (models.Submitted, error) {
	timeout, err := kind.Seconds("timeout_seconds", n.TimeoutSeconds, defaultBuildTimeout, time.Second)
	if err != nil {
		return models.Submitted{}, err
	}
	if timeout > maxBuildTimeout {
		return models.Submitted{}, kind.Invalid("timeout_seconds", "must be at most %g", maxBuildTimeout.Seconds())
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
	if err := c.images.Check(ctx, o.TenantID, n.fromField(), from); err != nil {
		return models.Submitted{}, err
	}
	if err := c.checkBuildTemplate(ctx, n, o.TenantID); err != nil {
		return models.Submitted{}, err
	}
	if n.Resources.DiskMB, err = c.catalog.buildDisk(n.Resources.DiskMB); err != nil {
		return models.Submitted{}, err
	}
	n.Resources = kind.BuildResources(n.Resources, c.catalog.Maximum)
	// Which is another one than a sandbox's.
	if err := c.fits(ctx, c.catalog.Providers[0], withoutDisk(n.Resources)); err != nil {
		return models.Submitted{}, err
	}
	box, row, err := c.buildRows(n, from, o.TenantID)
	if err != nil {
		return models.Submitted{}, err
	}
	sub := models.Submission{SandboxID: box.ID, New: box, Build: row, Timeout: buildWait}
	return c.submit(ctx, sub, []kind.Args{&kind.Build{BuildID: row.ID, TimeoutSeconds: timeout.Seconds()}}, o)
}

// check says what is wrong with the wish, and else what it stands on.
func (n NewBuild) check() (from string, err error) {
	if err := CheckTemplate(models.Template{Name: n.Template, Image: "any"}); err != nil {
		return "", err
	}
	limits := CreateSandbox{
		CPUs:     n.Resources.CPUs,
		MemoryMB: n.Resources.MemoryMB,
		DiskMB:   n.Resources.DiskMB,
		Pids:     n.Resources.Pids,
	}
	if err := limits.check(); err != nil {
		return "", err
	}
	var bad *dockerfile.Error
	if err := n.Recipe.Check(n.Files); errors.As(err, &bad) {
		return "", kind.Invalid("recipe", "%v", bad)
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

// checkBuildTemplate refuses a build for a template whose runtime is not offered any more, or for a new one that there
// is no room for, as it now stands.
func (c *Client) checkBuildTemplate(ctx context.Context, n NewBuild, tenantID string) error {
	o := models.Owner{Tenant: tenantID}
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
func (c *Client) buildRows(n NewBuild, from, tenantID string) (*models.Sandbox, *models.Build, error) {
	spec, err := json.Marshal(kind.Spec{Resources: n.Resources})
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(n.Recipe)
	if err != nil {
		return nil, nil, err
	}
	box := &models.Sandbox{
		ID: models.NewID("sb"), TenantID: tenantID, Provider: c.catalog.Providers[0], Template: &n.Template, Image: from,
		State: models.SandboxCreating, Desired: models.DesiredRunning, Spec: spec, OnTimeout: "delete",
		TimeoutMS: buildWait.Milliseconds(),
	}
	weigh(box, n.Resources)
	b := &models.Build{
		ID: models.NewID(
			"bld_",
		), TenantID: tenantID, Shared: n.Shared, Template: n.Template, SandboxID: box.ID, Recipe: text, Files: n.Files,
		Image: from,
	}
	if n.Recipe.Image == "" {
		b.Image = imagepolicy.ImageOf(b.ID)
	}
	box.Labels = map[string]string{"sandyard.build": b.ID}
	return box, b, nil
}
