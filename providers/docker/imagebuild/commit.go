package imagebuild

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

const (
	// holdTries is how often a build asks to freeze its container while the machine is too busy for it.
	holdTries = 10
	// holdPause is the time between two of them. runc itself tries for about a second.
	holdPause = 500 * time.Millisecond
)

// commit makes the image of what the steps have left. What still runs writes nothing more once it was measured.
func (b *Builder) commit(ctx context.Context, watch *Watch, build providers.Build) error {
	ref := watch.layer.ref
	if err := b.hold(ctx, ref); err != nil {
		return err
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

// hold freezes the build's container. On a busy machine a freeze may fail that succeeds a moment later, and the steps
// have run for minutes: so the build asks again.
func (b *Builder) hold(ctx context.Context, ref string) error {
	const doing = "hold the build's container"
	for try := 1; ; try++ {
		err := b.cfg.API.ContainerPause(ctx, ref)
		if err == nil {
			return nil
		}
		if !engineerr.Unfrozen(err) || try == holdTries {
			return buildError(err, doing)
		}
		select {
		case <-time.After(holdPause):
		case <-ctx.Done():
			return engineerr.Translate(ctx.Err(), doing)
		}
	}
}
