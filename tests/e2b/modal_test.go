//go:build e2b

package e2b

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker"
	"sandyard/providers/modal"
	"sandyard/providers/modal/modaltest"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
)

// TestModalProvider holds the provider modal to the contract, with a stand-in in the vendor's place, by Modal's own
// client.
func TestModalProvider(t *testing.T) {
	t.Parallel()
	s := newModal(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { return modals(t, s, "inner") }, fixture.Options{
		Image: "python:3.12-slim", Script: fixture.Bash(), System: true,
	})
}

// TestModalsPorts reaches a program in a sandbox by a connect token.
func TestModalsPorts(t *testing.T) {
	t.Parallel()
	s := newModal(t)
	reachesPorts(t, "Authorization: Bearer other", modals(t, s, "inner"), modals(t, s, "inner"))
}

// TestSandyardOverModal makes the sandboxes of a whole installation there.
func TestSandyardOverModal(t *testing.T) {
	t.Parallel()
	s := &stack{modal: newModal(t), fleet: "outer"}
	newStackOf(t, s)
	p := modals(t, s.modal, s.fleet)
	s.makesElsewhere(s.modal.TokenSecret, nil, func() (int, error) {
		left, err := p.List(t.Context())
		return len(left), err
	})
}

// modals is a worker's provider.
func modals(t *testing.T, s *modaltest.Server, fleet string) *modal.Provider {
	t.Helper()
	p, err := modal.New(modal.Config{TokenID: s.TokenID, TokenSecret: s.TokenSecret, Server: s.URL, Fleet: fleet})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// newModal stands in Modal's place, over the engine of the tests.
func newModal(t *testing.T) *modaltest.Server {
	t.Helper()
	p, err := docker.New(t.Context(), docker.Config{
		Fleet: "modal-" + strings.ToLower(rand.Text()[:12]), Guest: os.DirFS(guest(t)), Unsafe: true,
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return modaltest.New(t, p, modaltest.Options{
		Images: map[string]string{modal.DefaultImage: "sandyard/python:default"}, WorkDir: confine.WorkDir,
	})
}
