//go:build e2b

package e2b

import (
	"context"
	"testing"

	"sandyard/providers"
	"sandyard/providers/e2b"
	"sandyard/providers/providertest"
)

// TestProvider holds the provider e2b to the contract, with a whole installation in the vendor's place.
func TestProvider(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { return s.provider(t) }, providertest.Options{
		Image: "base", Script: providertest.Bash(), System: true,
	})
}

// provider is another worker's, with this installation in the vendor's place.
func (s *stack) provider(t *testing.T) *e2b.Provider {
	t.Helper()
	p, err := e2b.New(e2b.Config{
		APIKey: s.key, URL: "http://" + s.api.Addr().String(), DataURL: "http://" + s.edge.Addr().String(), Fleet: "inner",
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// TestProvidersSandboxForItsClient gives a sandbox that the provider made to the vendor's own Python client.
func TestProvidersSandboxForItsClient(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := s.provider(t)
	made, err := p.Create(
		t.Context(),
		providers.Spec{
			ID:     "forclients",
			Image:  "base",
			Labels: map[string]string{"suite": "provider"},
			Env:    map[string]string{"GREETING": "hello"},
		},
	)
	check(t, err)
	t.Cleanup(func() {
		if err := p.Delete(context.Background(), "forclients"); err != nil {
			t.Error(err)
		}
	})
	box, err := p.Open(t.Context(), "forclients")
	check(t, err)
	_, err = box.WriteFile(t.Context(), "from-provider", []byte("by the provider"), 0)
	check(t, err)
	s.drive("venv/bin/python", "provider.py", "python/provider.py", made.Ref)
	data, err := box.ReadFile(t.Context(), "from-client", 100)
	if err != nil || string(data) != "by the client" {
		t.Errorf("what the client wrote is read as %q, %v", data, err)
	}
}
