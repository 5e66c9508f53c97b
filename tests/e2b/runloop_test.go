//go:build e2b

package e2b

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"sandyard/providers/docker"
	"sandyard/providers/runloop/runlooptest"
)

// TestRunloopsClient runs Runloop's official client against what stands in Runloop's place in tests of the provider
// runloop: the stand-in is as that client expects.
func TestRunloopsClient(t *testing.T) {
	t.Parallel()
	s := newRunloop(t)
	env := append(os.Environ(), "RUNLOOP_BASE_URL="+s.URL, "RUNLOOP_API_KEY="+s.Key, "RUNLOOP_TUNNEL_URL="+s.TunnelURL)
	drive(t, env, "node", "runloop.mjs", "js/runloop.mjs")
}

// newRunloop stands in Runloop's place, over the engine of the tests.
func newRunloop(t *testing.T) *runlooptest.Server {
	t.Helper()
	p, err := docker.New(t.Context(), docker.Config{
		Fleet: "runloop-" + strings.ToLower(rand.Text()[:12]), Guest: os.DirFS(guest(t)), Unsafe: true,
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return runlooptest.New(t, p, runlooptest.Options{Image: "sandyard/python:default"})
}
