//go:build gvisor

package docker_test

import (
	"testing"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/providertest"
)

func underGVisor(t *testing.T) (open func(*testing.T) providers.Provider, o providertest.Options) {
	t.Helper()
	y := newGVisorYard(t)
	open = func(t *testing.T) providers.Provider {
		t.Helper()
		return y.openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"})
	}
	return open, providertest.Options{Image: image, Script: providertest.Bash(), System: true, Limits: true, OwnKernel: true}
}

func TestConformanceUnderGVisor(t *testing.T) {
	t.Parallel()
	open, o := underGVisor(t)
	providertest.Run(t, open, o)
}

func TestHostileUnderGVisor(t *testing.T) {
	t.Parallel()
	open, o := underGVisor(t)
	providertest.Hostile(t, open, o)
}
