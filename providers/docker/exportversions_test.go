package docker

import (
	"github.com/docker/docker/api/types"
)

// Outdated is for tests that need an engine of a kind.
func Outdated(engine types.Version) []string { return outdated(engine) }
