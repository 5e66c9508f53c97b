// Package imagebuild runs the steps of image builds in containers of a Docker engine, watches what they write, and
// commits what they leave as an image. Package docker makes and removes the containers.
package imagebuild

import (
	"context"
	"io"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"sandyard/providers"
)

// Config is what builds need of the engine and its provider.
type Config struct {
	API *client.Client
	// GuestProgram is the guest's path in a build's container.
	GuestProgram string
	// DiskReserve is how much of the engine's disk builds leave free, in bytes; 0 = they do not look.
	DiskReserve int64
	// Disk tells what is free where the engine's directory lies, or fails where that cannot be seen.
	Disk func(context.Context) (unix.Statfs_t, error)
	// Image describes an image that the engine holds.
	Image func(ctx context.Context, name string) (image.InspectResponse, error)
}

// Builder runs builds on one engine. They share its disk.
type Builder struct {
	cfg    Config
	builds watches
}

// New makes a builder without builds.
func New(cfg Config) *Builder { return &Builder{cfg: cfg} }

// Begin counts a build among those under way, before its container is made; it may write limitMB megabytes, 0 = any
// number. The returned function takes it away.
func (b *Builder) Begin(limitMB int64) (w *Watch, end func()) {
	w = &Watch{limitMB: limitMB}
	return w, b.builds.begin(w)
}

// Run runs the steps of build in its running container ref and commits the image build.Image, with the labels of build.
// gvisor says that the container runs under gVisor. The output of the steps goes to log.
func (b *Builder) Run(
	ctx context.Context,
	w *Watch,
	ref string,
	gvisor bool,
	build providers.Build,
	log io.Writer,
) error {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.end, w.layer = cancel, b.layerOf(ctx, ref)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(own, w)
	}()
	var err error
	if gvisor {
		err = b.keepsWrites(own, ref)
	}
	if err == nil {
		err = b.runSteps(own, ref, build, log)
	}
	if err == nil {
		err = b.commit(own, w, build)
	}
	if cause := context.Cause(own); cause != nil && ctx.Err() == nil {
		err = cause // what watch has found
	}
	cancel(nil)
	<-watched
	return err
}
