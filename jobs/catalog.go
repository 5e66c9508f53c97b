package jobs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"sandyard/imageref"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/tokens"
)

// Catalog is what the configuration says sandboxes may be made from.
type Catalog struct {
	Providers []string // the first is the default
	Able      []providers.Capabilities
	Keyed     []string          // of all that there are, those that tenants may have keys of
	Names     map[string]string // provider/template → the template's name there
	Templates map[string]string // name → image of the templates that the configuration declares
	Template  string            // the default's name
	Edge      tokens.Address    // where the ports of sandboxes are reached
	Runtimes  []string          // what requests and templates may name
	// What requests and templates may name, besides images of shared templates and of own builds.
	Images imageref.Globs
	// BuildDiskMB is what a build may ask to add to its base image, at most; 0 = no limit.
	BuildDiskMB int64
	// Maximum is what one sandbox or build may ask for, whatever templates say; 0 = no limit. Of builds it bounds all but
	// the disk.
	Maximum models.Bounds
	// Callbacks says which addresses a callback's URL may name.
	Callbacks netguard.Rules
	// Defaults are what requests and templates leave open.
	Defaults Defaults
	// Lifetime and Paused bound how long sandboxes may live, and may stay paused.
	Lifetime, Paused Span
}

// Declared returns the templates that the configuration declares, in full.
func (k Catalog) Declared() []models.Template {
	var all []models.Template
	for _, name := range slices.Sorted(maps.Keys(k.Templates)) {
		all = append(all, models.Template{Name: name, Image: k.Templates[name], Definition: builtin(name)})
	}
	return all
}

// source is what a wish for a sandbox resolves to.
type source struct {
	places   []kind.Place // in the order of choice
	runtime  string       // empty = the template's
	defaults Defaults
	template models.Template // without a name where the wish names an image
}

// fits refuses limits that the server does not allow or that no worker can give.
func (c *Client) fits(ctx context.Context, provider string, r providers.Resources) error {
	if err := c.catalog.allow(r); err != nil {
		return err
	}
	return c.rooms.check(ctx, provider, r)
}

// resolve finds provider, template and image of a wish, or says which of them is unknown.
func (c *Client) resolve(ctx context.Context, wish CreateSandbox, tenantID string) (from source, err error) {
	from = source{runtime: wish.Runtime, defaults: c.catalog.Defaults}
	if err := c.catalog.checkRuntime("runtime", wish.Runtime); err != nil {
		return from, err
	}
	if wish.Image != "" {
		if wish.Template != "" {
			return from, kind.Invalid("image", "give either template or image")
		}
		from.places, err = c.places(ctx, wish, models.Template{}, tenantID)
		return from, err
	}
	t, err := c.Template(ctx, tenantID, wish.Template)
	if errors.Is(err, models.ErrNotFound) {
		return from, c.unknownTemplate(ctx, tenantID, wish.Template)
	}
	if err != nil {
		return from, err
	}
	from.template = t
	if from.places, err = c.places(ctx, wish, t, tenantID); err != nil {
		return from, err
	}
	return from, c.catalog.checkRuntime("template", t.Definition.Runtime)
}

// namedTemplates is how many an error names that says what there is.
const namedTemplates = 20

func (c *Client) unknownTemplate(ctx context.Context, tenantID, name string) error {
	names, err := c.store.TemplateNames(ctx, tenantID, namedTemplates+1)
	if err != nil {
		return err
	}
	names = slices.AppendSeq(names, maps.Keys(c.catalog.Templates)) // what is declared counts also without a row
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > namedTemplates {
		names, more = names[:namedTemplates], " and more; list them with GET /v1/templates"
	}
	return kind.Invalid("template", "unknown template %.100q; this server has %v%s", name, names, more)
}

// apply completes a sandbox with what its template gives.
func (f source) apply(box *models.Sandbox, spec *kind.Spec) error {
	box.Provider, box.Image, spec.Runtime = f.places[0].Provider, f.places[0].Image, f.runtime
	spec.Next = f.places[1:]
	t := f.template
	if t.Name == "" {
		return nil
	}
	d := t.Definition
	box.Template = &t.Name
	env := maps.Clone(d.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, spec.Env)
	spec.Env = env
	spec.FromTemplate = kind.FromTemplate{
		WorkDir: d.WorkDir, Runtime: cmp.Or(f.runtime, d.Runtime), Start: d.StartCommand, Ready: d.Ready, Ports: d.Ports,
		MCPPort: d.MCPPort, VSCodePort: d.VSCodePort, Shared: t.TenantID == nil,
	}
	if t.BuildID != nil {
		spec.Build = *t.BuildID
	}
	spec.Resources = spec.Resources.Or(providers.Resources(d.Resources))
	if field, asked, most := above(spec.Resources, providers.Resources(d.Maximum)); field != "" {
		return kind.Invalid(field, "is %v, but the template allows at most %v", asked, most)
	}
	return kind.CheckEnv("env", spec.Env)
}

// above names a limit in r that is more than most allows, with both values; empty = there is none. 0 = no limit.
func above(r, most providers.Resources) (field string, asked, limit float64) {
	for _, x := range []struct {
		field        string
		asked, limit float64
	}{
		{"cpus", r.CPUs, most.CPUs},
		{"memory_mb", float64(r.MemoryMB), float64(most.MemoryMB)},
		{"disk_mb", float64(r.DiskMB), float64(most.DiskMB)},
		{"pids", float64(r.Pids), float64(most.Pids)},
	} {
		if x.limit > 0 && x.asked > x.limit {
			return x.field, x.asked, x.limit
		}
	}
	return "", 0, 0
}

// allow refuses limits of a sandbox or build above the server's.
func (k Catalog) allow(r providers.Resources) error {
	if field, asked, most := above(r, providers.Resources(k.Maximum)); field != "" {
		setting := "SANDBOX_MAX_" + strings.ToUpper(field)
		return kind.Invalid(field, "is %v, but this server allows at most %v (%s)", asked, most, setting)
	}
	return nil
}

func withoutDisk(r providers.Resources) providers.Resources {
	r.DiskMB = 0
	return r
}

// buildDisk fills the open limit of a build's disk and refuses one above the server's.
func (k Catalog) buildDisk(mb int64) (int64, error) {
	most := cmp.Or(k.BuildDiskMB, math.MaxInt64)
	if mb == 0 {
		mb = min(kind.BuildDiskMB, most)
	}
	if mb > most {
		return mb, kind.Invalid("disk_mb", "is %d, but this server allows at most %d for builds (BUILD_DISK_MB)", mb, most)
	}
	return mb, nil
}
