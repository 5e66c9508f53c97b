package kind

import (
	"time"

	"sandyard/models"
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
