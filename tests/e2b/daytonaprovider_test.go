//go:build e2b

package e2b

import (
	"context"
	"testing"

	"sandyard/providers"
	"sandyard/providers/daytona"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
)

// TestDaytonaProvider holds the provider daytona to the contract, with a whole installation in the vendor's place.
func TestDaytonaProvider(t *testing.T) {
	t.Parallel()
	s := newStackOf(t, &stack{maxBody: 16 << 20})
	providertest.Run(t, func(t *testing.T) providers.Provider { return s.daytona(t) }, fixture.Options{
		Image: "python", Script: fixture.Bash(), System: true,
	})
}

// daytona is another worker's, with this installation in the vendor's place.
func (s *stack) daytona(t *testing.T) *daytona.Provider {
	t.Helper()
	p, err := daytona.New(daytona.Config{
		APIKey: s.ownKey, URL: s.apiURL() + "/daytona/api", Fleet: "inner",
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// TestDaytonasSandboxForItsClient gives a sandbox that the provider made to the vendor's own Python client.
func TestDaytonasSandboxForItsClient(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.hold(daytonas(), daytonaDocument)
	p := s.daytona(t)
	made, err := p.Create(t.Context(), providers.Spec{
		ID: "forclients", Labels: map[string]string{"suite": "provider"}, Env: map[string]string{"GREETING": "hello"},
	})
	check(t, err)
	t.Cleanup(func() { check(t, p.Delete(context.Background(), "forclients")) })
	box, err := p.Open(t.Context(), "forclients")
	check(t, err)
	_, err = box.WriteFile(t.Context(), "/tmp/from-provider", []byte("by the provider"), 0)
	check(t, err)
	s.drive("daytona/bin/python", "daytona_provider.py", "python/daytona_provider.py", made.Ref)
	data, err := box.ReadFile(t.Context(), "/tmp/from-client", 100)
	if err != nil || string(data) != "by the client" {
		t.Errorf("what the client wrote is read as %q, %v", data, err)
	}
}

// TestDaytonasPorts reaches a program in a sandbox through its preview.
func TestDaytonasPorts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	reachesPorts(t, "X-Daytona-Preview-Token: other", s.daytona(t), s.daytona(t))
}
