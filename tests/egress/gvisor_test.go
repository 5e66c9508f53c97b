//go:build gvisor

package egress_test

import (
	"os/exec"
	"testing"

	"sandyard/dev/testenv"
)

// TestEgressUnderGVisor shows it where the sandbox's network is that of gVisor's kernel.
func TestEgressUnderGVisor(t *testing.T) {
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Fatalf("%v: run scripts/setup.sh test", err)
	}
	e, err := testenv.StartEngine(testenv.EngineOptions{Runtimes: map[string][]string{
		"runsc": {runsc, "--network=none", "--platform=ptrace"},
	}})
	check(t, err)
	t.Cleanup(e.Close)
	if out, err := exec.Command("sh", "-c", "docker save "+image+" | docker -H "+e.Host+" load").CombinedOutput(); err != nil {
		t.Fatalf("load the image: %v: %s", err, out)
	}
	show(t, "DOCKER_HOST", e.Host, "SANDBOX_RUNTIME", "runsc")
}
