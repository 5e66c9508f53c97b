package providers

import (
	"context"
	"io"
)

// Builder is implemented by providers that can make images on their backend.
type Builder interface {
	// Image describes an image that the backend holds, or ErrImageMissing. It never fetches one: its name may be a
	// stranger's, and would make the backend connect to wherever that says.
	Image(ctx context.Context, name string) (ImageConfig, error)
	// Build makes the image b.Image by running b's steps in a container that stands in for the sandbox b.ID; it is gone
	// when Build returns, whatever happened. The steps run as root of that container, without a network, and nothing of
	// the backend's machine is in reach. A step that fails is a BuildFailed error that names it. What the steps write
	// goes to log, which is not called concurrently.
	Build(ctx context.Context, b Build, log io.Writer) error
	// Built lists the images that builds of this fleet have left on the backend.
	Built(ctx context.Context) ([]string, error)
	// RemoveImage removes an image that no container uses. An absent one is a success; one in use stays.
	RemoveImage(ctx context.Context, name string) error
}

// ImageConfig is what an image says of itself.
type ImageConfig struct {
	Env     map[string]string
	WorkDir string
	User    string
}

// Build is the making of one image.
type Build struct {
	ID        string // of the sandbox it runs as
	Image     string // the name that the result gets
	From      string // the image it stands on
	Steps     []Step
	Config    ImageConfig // of the result
	Labels    map[string]string
	Runtime   string    // as in a Spec
	Resources Resources // while it runs; DiskMB = what it may add to the image
}

// Step is one step of a build: files are unpacked, then a program runs.
type Step struct {
	Text  string   // for the log and for errors
	Files []byte   // a tar, unpacked at /
	Argv  []string // empty = nothing runs
	Env   map[string]string
	Dir   string
	User  string
}
