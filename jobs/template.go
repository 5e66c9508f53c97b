package jobs

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"sandyard/egress"
	"sandyard/imageref"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// Template returns the template that a tenant means by name; no name means the default one. What the configuration
// declares counts also where its row is missing. Error: models.ErrNotFound.
func (c *Client) Template(ctx context.Context, tenantID, name string) (models.Template, error) {
	if name == "" {
		name = c.catalog.Template
	}
	t, err := c.store.Template(ctx, tenantID, name)
	if !errors.Is(err, models.ErrNotFound) {
		return t, err
	}
	for _, d := range c.catalog.Declared() {
		if d.Name == name {
			return d, nil
		}
	}
	return t, err
}

// Templates lists what a tenant may make sandboxes from, by the bytes of their names: those behind a name, so many at
// most.
func (c *Client) Templates(ctx context.Context, tenantID, after string, limit int) ([]models.Template, error) {
	list, err := c.store.Templates(ctx, tenantID, after, limit)
	if err != nil {
		return nil, err
	}
	for _, d := range c.catalog.Declared() {
		if d.Name > after && !slices.ContainsFunc(list, func(t models.Template) bool { return t.Name == d.Name }) {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(x, y models.Template) int { return strings.Compare(x.Name, y.Name) })
	return list[:min(len(list), limit)], nil
}

// CheckTemplate says what is wrong with a template of this owner on this server, as an *InvalidError. The image of a
// shared template is the operator's to choose.
func (c *Client) CheckTemplate(ctx context.Context, o models.Owner, t models.Template) error {
	if err := CheckTemplate(t); err != nil {
		return err
	}
	if o.Tenant != "" {
		if err := c.images.Check(ctx, o.Tenant, "image", t.Image); err != nil {
			return err
		}
	}
	if err := c.checkNames(o, t.Definition); err != nil {
		return err
	}
	if err := c.catalog.checkRuntime("runtime", t.Definition.Runtime); err != nil {
		return err
	}
	for _, l := range []models.Bounds{t.Definition.Resources, t.Definition.Maximum} {
		if err := c.catalog.allow(providers.Resources(l)); err != nil {
			return err
		}
	}
	return nil
}

// checkNames says what is wrong with the providers of a template and its names there.
func (c *Client) checkNames(o models.Owner, d models.Definition) error {
	if err := c.catalog.checkOrder("providers", d.Providers); err != nil {
		return err
	}
	for provider, name := range d.Names {
		if err := c.catalog.checkOrder("names", []string{provider}); err != nil {
			return err
		}
		if c.catalog.able(provider).Images != providers.Unsupported {
			return kind.Invalid("names", "provider %s makes sandboxes from images; leave it out", provider)
		}
		if name == "" || len(name) > 256 {
			return kind.Invalid("names", "the name at %s must have 1 to 256 characters", provider)
		}
		if o.Tenant == "" {
			continue
		}
		if err := c.catalog.checkName("names", provider, name); err != nil {
			return err
		}
	}
	return nil
}

// CheckTemplate says what is wrong with a template on any server, as an *InvalidError.
func CheckTemplate(t models.Template) error {
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`).MatchString(t.Name) {
		return kind.Invalid(
			"name",
			"%q is not a valid template name; use lower-case letters, digits and ._-, at most 63",
			t.Name,
		)
	}
	if _, err := imageref.Parse(t.Image); err != nil {
		return kind.Invalid("image", "%v", err)
	}
	d := t.Definition
	for _, err := range []error{
		kind.NoNUL("start_command", d.StartCommand), kind.NoNUL("description", d.Description), kind.NoNUL("runtime",
			d.Runtime),
		kind.CheckEnv("env", d.Env), checkWorkDir(d.WorkDir), checkPorts(d), checkProbe(d.Ready), checkLimits(d),
		checkPool(d.Pool), checkEgress(d.Egress),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkWorkDir(dir string) error {
	if dir != "" && (!path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || strings.ContainsAny(dir, "\x00:,")) {
		return kind.Invalid("work_dir", "must be an absolute, clean path, such as /workspace")
	}
	return kind.CheckNotReserved("work_dir", dir)
}

func checkPorts(d models.Definition) error {
	for field, ports := range map[string][]int{"ports": d.Ports, "mcp_port": {d.MCPPort}, "vscode_port": {d.VSCodePort}} {
		for _, port := range ports {
			if port < 0 || port > 65535 || port == 0 && field == "ports" {
				return kind.Invalid(field, "%d is not a valid port; use 1 to 65535", port)
			}
			if kind.IsOwnPort(port) {
				return kind.Invalid(field, "port %d is used by the sandbox itself; choose another", port)
			}
		}
	}
	return nil
}

func checkLimits(d models.Definition) error {
	for field, l := range map[string]models.Bounds{"resources": d.Resources, "maximum": d.Maximum} {
		c := CreateSandbox{CPUs: l.CPUs, MemoryMB: l.MemoryMB, DiskMB: l.DiskMB, Pids: l.Pids}
		if err := c.check(); err != nil {
			return kind.Invalid(field, "%v", err)
		}
	}
	if field, _, _ := above(providers.Resources(d.Resources), providers.Resources(d.Maximum)); field != "" {
		return kind.Invalid("resources."+field, "is more than the template's maximum")
	}
	return nil
}

func checkEgress(r *models.EgressRules) error {
	if r == nil {
		return nil
	}
	return kind.CheckPolicy("egress.", egress.Policy{Allow: r.Allow, Deny: r.Deny})
}

func checkPool(p *models.PoolSize) error {
	if p != nil && (p.Min < 0 || p.Max < 0 || p.Min > 1000 || p.Max > 1000) {
		return kind.Invalid("pool", "sizes must be between 0 and 1000")
	}
	return nil
}

// Bounds of the wait for a new sandbox's programs. maxPatience bounds the timeout of a probe.
const maxPatience = 10 * time.Minute

func checkProbe(p *models.Probe) error {
	if p == nil {
		return nil
	}
	ways := 0
	for _, set := range []bool{p.HTTP != nil, p.TCP != nil, p.Command != ""} {
		if set {
			ways++
		}
	}
	switch {
	case ways != 1:
		return kind.Invalid("ready", "give exactly one of http, tcp and command")
	case p.TimeoutSeconds < 0 || p.TimeoutSeconds > maxPatience.Seconds():
		return kind.Invalid("ready.timeout_seconds", "must be between 0 and %g", maxPatience.Seconds())
	case p.TCP != nil && (p.TCP.Port < 1 || p.TCP.Port > 65535):
		return kind.Invalid("ready.tcp.port", "%d is not a valid port; use 1 to 65535", p.TCP.Port)
	case p.HTTP != nil && (p.HTTP.Port < 1 || p.HTTP.Port > 65535):
		return kind.Invalid("ready.http.port", "%d is not a valid port; use 1 to 65535", p.HTTP.Port)
	case p.HTTP != nil && p.HTTP.Path != "" && (p.HTTP.Path[0] != '/' || strings.ContainsAny(p.HTTP.Path, " \r\n\x00")):
		return kind.Invalid("ready.http.path", "must begin with / and contain no blanks")
	}
	return kind.NoNUL("ready.command", p.Command)
}
