package imagebuild

import (
	"context"
	"maps"
	"slices"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
)

// commit makes the image of what the steps have left. What still runs writes nothing more once it was measured.
func (b *Builder) commit(ctx context.Context, watch *Watch, build providers.Build) error {
	ref := watch.layer.ref
	if err := b.cfg.API.ContainerPause(ctx, ref); err != nil {
		return buildError(err, "hold the build's container")
	}
	if watch.limitMB > 0 {
		if err := watch.look(ctx); err != nil {
			return err
		}
	}
	base, err := b.cfg.Image(ctx, build.From)
	if err != nil {
		return buildError(err, "look for the base image")
	}
	config := &container.Config{
		User:       build.Config.User,
		WorkingDir: build.Config.WorkDir,
		Entrypoint: []string{"/bin/sh"},
		Labels:     map[string]string{},
	}
	if base.Config != nil && len(base.Config.Entrypoint) > 0 {
		config.Entrypoint = base.Config.Entrypoint
	}
	maps.Copy(config.Labels, build.Labels)
	for _, name := range slices.Sorted(maps.Keys(build.Config.Env)) {
		config.Env = append(config.Env, name+"="+build.Config.Env[name])
	}
	_, err = b.cfg.API.ContainerCommit(ctx, ref, container.CommitOptions{Reference: build.Image, Config: config})
	if err != nil {
		return buildError(err, "keep the image")
	}
	return nil
}
