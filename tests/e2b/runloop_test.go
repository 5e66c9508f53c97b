//go:build e2b

package e2b

import (
	"cmp"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/runloop"
	"sandyard/providers/runloop/runlooptest"
)

// TestRunloopsClient runs Runloop's official client against what stands in Runloop's place in tests of the provider
// runloop: the stand-in is as that client expects.
func TestRunloopsClient(t *testing.T) {
	t.Parallel()
	s := newRunloop(t, "")
	env := append(os.Environ(), "RUNLOOP_BASE_URL="+s.URL, "RUNLOOP_API_KEY="+s.Key, "RUNLOOP_TUNNEL_URL="+s.TunnelURL)
	drive(t, env, "node", "runloop.mjs", "js/runloop.mjs")
}

// TestRunloopProvider holds the provider runloop to the contract, with that stand-in in the vendor's place.
func TestRunloopProvider(t *testing.T) {
	t.Parallel()
	s := newRunloop(t, confine.WorkDir)
	providertest.Run(t, func(t *testing.T) providers.Provider { return runloops(t, s, "inner") }, fixture.Options{
		Script: fixture.Bash(), System: true,
	})
}

// TestRunloopsPorts reaches a program in a sandbox through its tunnel.
func TestRunloopsPorts(t *testing.T) {
	t.Parallel()
	s := newRunloop(t, confine.WorkDir)
	reachesPorts(t, "X-Runloop-Tunnel-Authorization: other", runloops(t, s, "inner"), runloops(t, s, "inner"))
}

// TestSandyardOverRunloop makes the sandboxes of a whole installation there.
func TestSandyardOverRunloop(t *testing.T) {
	t.Parallel()
	s := &stack{devs: newRunloop(t, confine.WorkDir), fleet: "outer"}
	newStackOf(t, s)
	p := runloops(t, s.devs, s.fleet)
	s.makesElsewhere(s.devs.Key, []string{"/pause", "/resume"}, func() (int, error) {
		left, err := p.List(t.Context())
		return len(left), err
	})
}

// runloops is a worker's provider.
func runloops(t *testing.T, s *runlooptest.Server, fleet string) *runloop.Provider {
	t.Helper()
	p, err := runloop.New(runloop.Config{APIKey: s.Key, URL: s.URL, Tunnel: s.TunnelURL, Fleet: fleet})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// newRunloop stands in Runloop's place, over the engine of the tests.
func newRunloop(t *testing.T, workDir string) *runlooptest.Server {
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
	return runlooptest.New(t, p, runlooptest.Options{
		Image: "sandyard/python:default", WorkDir: workDir, Disk: []string{cmp.Or(workDir, "/home/user"), "/tmp", "/var/tmp"},
	})
}
