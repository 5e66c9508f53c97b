//go:build gvisor

package docker_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/providertest/hostile"
)

func underGVisor(t *testing.T) (open func(*testing.T) providers.Provider, o fixture.Options) {
	t.Helper()
	y := newGVisorYard(t)
	open = func(t *testing.T) providers.Provider {
		t.Helper()
		return y.openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"})
	}
	return open, fixture.Options{Image: image, Script: fixture.Bash(), System: true, Limits: true, OwnKernel: true}
}

func TestConformanceUnderGVisor(t *testing.T) {
	t.Parallel()
	open, o := underGVisor(t)
	providertest.Run(t, open, o)
}

func TestHostileUnderGVisor(t *testing.T) {
	t.Parallel()
	open, o := underGVisor(t)
	hostile.Run(t, open, o)
}

func boxUnderGVisor(t *testing.T) providers.Sandbox {
	t.Helper()
	_, box := create(t, newGVisorYard(t).openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"}))
	return box
}

// TestConfinementUnderGVisor runs the tests of what confines file calls in a sandbox: they are about its kernel.
func TestConfinementUnderGVisor(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "tests")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "sandyard/guest/saferoot")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	box := boxUnderGVisor(t)
	if _, err := box.WriteFile(t.Context(), "tests", binary, 0o755); err != nil {
		t.Fatal(err)
	}
	res, err := box.Run(t.Context(), providers.Command{Name: newID(), Shell: "./tests -test.v", Timeout: 3 * time.Minute})
	if err != nil || res.ExitCode != 0 || !strings.Contains(string(res.Stdout), "--- PASS: TestSwappedDirectory") {
		t.Errorf("exit code %d, %v\n%s%s", res.ExitCode, err, res.Stdout, res.Stderr)
	}
}

// TestListingUnderGVisor holds docs/security.md to what it says of gVisor's release of 2022, whose statx knows no AT_NO_AUTOMOUNT:
// ls and stat fail with it, what asks in another way does not. Later kernels may know it.
func TestListingUnderGVisor(t *testing.T) {
	t.Parallel()
	box := boxUnderGVisor(t)
	for _, script := range []string{"stat -c %a /etc/passwd", "ls /etc/passwd"} {
		if got := shell(t, box, script); got != "644" && got != "/etc/passwd" && !strings.HasSuffix(got, "'/etc/passwd': Invalid argument") {
			t.Errorf("%s says %q", script, got)
		}
	}
	for script, want := range map[string]string{
		"find /etc/passwd -printf %m":                                   "644",
		"test -r /etc/passwd && echo /etc/passw*":                       "/etc/passwd",
		"python3 -c 'import os; print(oct(os.stat(\"/etc\").st_mode))'": "0o40755",
	} {
		if got := shell(t, box, script); got != want {
			t.Errorf("%s says %q, not %q", script, got, want)
		}
	}
}

// TestPoolUnderGVisor takes a sandbox from a pool whose containers wait under gVisor.
func TestPoolUnderGVisor(t *testing.T) {
	t.Parallel()
	p := newGVisorYard(t).fillPool(t, image, docker.Config{Guest: guestFiles(t), Runtime: "runsc", Pool: pool.Config{Size: 1}})
	before := time.Now()
	id := newID()
	made, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image, Env: map[string]string{"SELF": id}})
	if err != nil {
		t.Fatal(err)
	}
	if !made.CreatedAt.Before(before) {
		t.Errorf("it was made at %v, after it was asked for at %v", made.CreatedAt, before)
	}
	box := open(t, p, id)
	if got, host := shell(t, box, `cat /proc/version`), readHost(t, "/proc/version"); got == host {
		t.Errorf("it has the kernel of the machine: %s", got)
	}
	if got := shell(t, box, `echo "$SELF"; id -u`); got != id+"\n1000" {
		t.Errorf("it says %q", got)
	}
}

// TestRemovalUnderGVisor removes a sandbox that is full of processes which fight for its share of the processors.
func TestRemovalUnderGVisor(t *testing.T) {
	t.Parallel()
	y := newGVisorYard(t)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"})
	spec := providers.Spec{ID: newID(), Image: image, Resources: providers.Resources{CPUs: 0.5, Pids: 512, MemoryMB: 2048}}
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	box := open(t, p, spec.ID)
	bomb := providers.Command{Name: newID(), Shell: "f() { f | f & }; f; sleep 600", Timeout: 10 * time.Minute}
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(t.Context(), bomb)
		ended <- err
	}()
	await(t, func() bool { return y.processes(t, spec.ID) > 200 })
	if err := p.Delete(t.Context(), spec.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the bomb's end is reported as if nothing had happened")
	}
	if _, err := y.api.ContainerInspect(t.Context(), "sandyard-"+spec.ID); !errdefs.IsNotFound(err) {
		t.Errorf("the container is left: %v", err)
	}
}

// processes is how many threads of the machine the container has.
func (y *yard) processes(t *testing.T, id string) uint64 {
	t.Helper()
	answer, err := y.api.ContainerStatsOneShot(t.Context(), "sandyard-"+id)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	return stats.PidsStats.Current
}
