//go:build gvisor

package egress_test

import (
	"os"
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
	t.Run("template", func(t *testing.T) { showTemplate(t, e.Host) })
	show(t, "DOCKER_HOST", e.Host, "SANDBOX_RUNTIME", "runsc")
}

// showTemplate makes a template of that runtime, beside which others keep the engine's.
func showTemplate(t *testing.T, engine string) {
	r := newRig(t, "DOCKER_HOST", engine, "SANDBOX_RUNTIMES", "runsc")
	r.startWorker(t)
	if status, doc := r.call(t, "POST", "/v1/templates", object{"name": "walled", "image": image, "runtime": "runsc"}); status != 201 {
		t.Fatalf("make the template: %d %s", status, doc.raw)
	}
	if status, doc := r.call(t, "POST", "/v1/templates", object{"name": "wrong", "image": image, "runtime": "nosuch"}); status != 422 {
		t.Errorf("a template of a runtime that is not offered: %d %s", status, doc.raw)
	}
	host, err := os.ReadFile("/proc/version")
	check(t, err)
	for _, c := range []struct {
		wish object
		own  bool
	}{{object{"template": "walled"}, true}, {object{}, false}, {object{"runtime": "runsc"}, true}} {
		out, _ := r.run(t, r.create(t, c.wish), "cat /proc/version")
		if own := out != string(host); own != c.own || out == "" {
			t.Errorf("a sandbox %v has the kernel %q, the machine %q", c.wish, out, host)
		}
	}
}
