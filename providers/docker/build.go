package docker

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
)

// labelBuild is on the images that builds have made; its value is the image's name.
const labelBuild = "sandyard.build"

const (
	// buildLife is when the container of a build ends whose worker has died and which nobody has removed.
	buildLife = 2 * time.Hour
	// guestProgram is the guest where a container sees it.
	guestProgram = confine.GuestDir + "/" + guestBinary
)

var _ providers.Builder = (*Provider)(nil)

// Image implements providers.Builder.
func (p *Provider) Image(ctx context.Context, name string) (providers.ImageConfig, error) {
	found, err := p.inspectImage(ctx, name)
	if err != nil {
		return providers.ImageConfig{}, engineerr.Translate(err, "look for the image")
	}
	c := providers.ImageConfig{Env: map[string]string{}}
	if found.Config != nil {
		c.WorkDir, c.User = found.Config.WorkingDir, found.Config.User
		for _, pair := range found.Config.Env {
			name, value, _ := strings.Cut(pair, "=")
			c.Env[name] = value
		}
	}
	return c, nil
}

// Build implements providers.Builder. The container has the name of the sandbox that it stands in for, so Delete and List
// know what a dead worker has left of it.
func (p *Provider) Build(ctx context.Context, b providers.Build, log io.Writer) error {
	if err := checkNames(b); err != nil {
		return err
	}
	unlock, err := p.alone(ctx, b.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := p.clear(ctx, b.ID); err != nil {
		return err
	}
	watch, end := p.builds.Begin(b.Resources.DiskMB)
	defer end() // as long as the container takes of the disk
	defer func() {
		last, stop := p.life.Own(ctx, removeTimeout+gvisorPatience)
		defer stop()
		if _, err := p.clear(last, b.ID); err != nil {
			p.cfg.Logger.WarnContext(ctx, "build container not removed", "sandbox_id", b.ID, "error", err)
		}
	}()
	ref, err := p.startBuild(ctx, b)
	if err != nil {
		return err
	}
	labels := maps.Clone(b.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	// What the container's own labels were for ends here.
	labels[labelFleet], labels[labelBuild], labels[labelSandbox] = p.cfg.Fleet, b.Image, ""
	b.Labels = labels
	return p.builds.Run(ctx, watch, ref, p.isGVisor(cmp.Or(b.Runtime, p.cfg.Runtime)), b, log)
}

// checkNames refuses a build of which a name is none.
func checkNames(b providers.Build) error {
	_, err := fullName(b.From)
	if err == nil {
		_, err = fullName(b.Image)
	}
	return err
}

// startBuild starts a container in which root may change the image's files, and nothing else: there is no network, the
// capabilities are those that installing files takes, and limits and system calls are a sandbox's. It waits for a free
// start, and gives it back when the container runs: a build may take as long as it likes, and others want to start.
func (p *Provider) startBuild(ctx context.Context, b providers.Build) (string, error) {
	select {
	case p.starts <- struct{}{}:
		defer func() { <-p.starts }()
	case <-ctx.Done():
		return "", engineerr.Translate(ctx.Err(), "wait for a free start")
	}
	from, err := fullName(b.From)
	if err != nil {
		return "", err
	}
	spec := providers.Spec{ID: b.ID, Image: from, WorkDir: confine.WorkDir, Runtime: cmp.Or(b.Runtime, p.cfg.Runtime), Resources: b.Resources}
	if err := p.checkRuntime(ctx, spec.Runtime); err != nil {
		return "", err
	}
	if err := p.safe(spec.Runtime); err != nil {
		return "", err
	}
	config := p.containerConfig(spec)
	config.User, config.WorkingDir, config.Env = "0:0", "/", nil
	// Nobody speaks to this guest: it reaps what the steps leave, and it ends.
	config.Entrypoint = []string{guestProgram, "stdio", "-workdir", "/", "-roots", confine.TempDir, "-unclaimed", buildLife.String()}
	ref, err := p.makeContainer(ctx, containerName(b.ID), config, spec, func(h *container.HostConfig) {
		h.ReadonlyRootfs, h.Tmpfs = false, nil
		h.Mounts = append(h.Mounts, p.guest.bind(hostnameFile), p.guest.bind(resolvFile))
		h.CapAdd = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
	})
	if err != nil {
		return "", engineerr.Translate(err, "create the build's container")
	}
	if err := p.api.ContainerStart(ctx, ref, container.StartOptions{}); err != nil {
		p.guest.forget() // as create does
		return "", startError(err)
	}
	return ref, nil
}

// Built implements providers.Builder.
func (p *Provider) Built(ctx context.Context) ([]string, error) {
	found, err := p.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("label", labelBuild))})
	if err != nil {
		return nil, engineerr.Translate(err, "list the images")
	}
	var names []string
	for _, i := range found {
		if name := i.Labels[labelBuild]; slices.Contains(i.RepoTags, name) { // not what was made on top of one
			names = append(names, name)
		}
	}
	return names, nil
}

// RemoveImage implements providers.Builder.
func (p *Provider) RemoveImage(ctx context.Context, name string) error {
	full, err := fullName(name)
	if err != nil {
		return err
	}
	_, err = p.api.ImageRemove(ctx, full, image.RemoveOptions{PruneChildren: true})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return engineerr.Translate(err, "remove the image")
}
