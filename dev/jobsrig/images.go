package jobsrig

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"sandyard/providers"
	"sandyard/providers/fake"
)

// Builder is the fake provider with images that it remembers.
type Builder struct {
	*fake.Provider
	Engine *Images
}

// Images is what an engine has built. It may be shared by several builders.
type Images struct {
	Mu     sync.Mutex
	Held   []string
	Builds int
	Fails  int           // so many builds fail in a way that may pass
	Hold   chan struct{} // builds wait for its end
	Made   []providers.Build
}

// Image implements providers.Imager: only of images that are held.
func (b *Builder) Image(_ context.Context, name string) (providers.ImageConfig, error) {
	b.Engine.Mu.Lock()
	defer b.Engine.Mu.Unlock()
	if !slices.Contains(b.Engine.Held, name) {
		return providers.ImageConfig{}, providers.ErrImageMissing
	}
	return providers.ImageConfig{}, nil
}

// Build remembers the image. It fails while Fails says so, and waits for the end of Hold.
func (b *Builder) Build(ctx context.Context, build providers.Build, log io.Writer) error {
	fmt.Fprintln(log, "building on", build.From)
	b.Engine.Mu.Lock()
	b.Engine.Builds++
	b.Engine.Made = append(b.Engine.Made, build)
	fails := b.Engine.Fails > 0
	b.Engine.Fails--
	hold := b.Engine.Hold
	b.Engine.Mu.Unlock()
	if fails {
		return providers.Unavailable.Errorf("the engine is away")
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return providers.Unavailable.Errorf("given up: %w", ctx.Err())
		}
	}
	b.Engine.Mu.Lock()
	defer b.Engine.Mu.Unlock()
	b.Engine.Held = append(b.Engine.Held, build.Image)
	return nil
}

// Create makes sandboxes of every image that was built, as the fake provider does of those it likes.
func (b *Builder) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	if _, err := b.Image(ctx, spec.Image); err != nil {
		return providers.Instance{}, err
	}
	spec.Image = "fake"
	return b.Provider.Create(ctx, spec)
}

// Built lists the images that were built.
func (b *Builder) Built(context.Context) ([]string, error) {
	b.Engine.Mu.Lock()
	defer b.Engine.Mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.Engine.Held), func(held string) bool { return held == "fake" }), nil
}

// RemoveImage fails for an image whose name ends with "stuck".
func (b *Builder) RemoveImage(_ context.Context, name string) error {
	b.Engine.Mu.Lock()
	defer b.Engine.Mu.Unlock()
	if strings.HasSuffix(name, "stuck") {
		return providers.Internal.Errorf("it cannot be removed")
	}
	b.Engine.Held = slices.DeleteFunc(b.Engine.Held, func(held string) bool { return held == name })
	return nil
}

// Count is how many builds have begun.
func (e *Images) Count() int {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return e.Builds
}
