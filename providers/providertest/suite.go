// Package providertest is the conformance suite every provider passes: the contract of package providers, as tests.
//
// A provider's own tests call Run with a way to open it, and hostile.Run if its sandboxes confine hostile code.
// Whatever the provider declares as unsupported is skipped with that reason, and so are cases that need a real
// operating system where fixture.Options says there is none.
package providertest

import (
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/cells"
	"sandyard/providers/providertest/fixture"
)

// Run holds the provider that open returns to the contract. Each call of open is another worker: a new provider value
// over the same backend.
func Run(t *testing.T, open func(t *testing.T) providers.Provider, o fixture.Options) {
	t.Helper()
	s := fixture.New(t, open, o)
	groups := []struct {
		name string
		run  func(*testing.T, *fixture.Suite)
	}{
		{"lifecycle", lifecycle},
		{"exec", exec},
		{"names", names},
		{"ends", ends},
		{"background", background},
		{"processes", processes},
		{"code", cells.Run},
		{"terminals", terminals},
		{"files", files},
		{"paths", paths},
		{"tools", tools},
		{"tricks", tricks},
		{"streams", streams},
		{"trees", trees},
		{"watch", watch},
		{"outsiders", outsiders},
		{"pause", pause},
		{"gone", gone},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.run(t, s)
		})
	}
}
