package kind

import (
	"cmp"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// Build makes an image for a template. It runs in a sandbox of its own, which is gone when it ends.
type Build struct {
	BuildID        string  `json:"build_id"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

// BuildResult is what a build's job says of it.
type BuildResult struct {
	BuildID  string `json:"build_id"`
	Template string `json:"template"`
	Image    string `json:"image" doc:"The template's new image"`
}

// Kind implements Args.
func (*Build) Kind() string { return models.KindBuild }

// Validate implements Args.
func (*Build) Validate() error { return nil }

func (b *Build) budget() (time.Duration, error) {
	return time.Duration(b.TimeoutSeconds * float64(time.Second)), nil
}

// BuildDiskMB is what a build may add to its base image that does not say.
const BuildDiskMB = 4096

// BuildResources fills the open limits of a build, within the server's maximum.
func BuildResources(r providers.Resources, most models.Bounds) providers.Resources {
	r.CPUs = cmp.Or(r.CPUs, 1)
	r.MemoryMB = cmp.Or(r.MemoryMB, min(1024, cmp.Or(most.MemoryMB, 1024)))
	r.Pids = cmp.Or(r.Pids, min(512, cmp.Or(most.Pids, 512)))
	return r
}
