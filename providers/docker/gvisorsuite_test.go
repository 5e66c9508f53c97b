//go:build gvisor

package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func boxUnderGVisor(t *testing.T) providers.Sandbox {
	t.Helper()
	_, box := create(t, newGVisorYard(t).openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"}))
	return box
}

// TestConfinementUnderGVisor runs the tests of what confines file calls in a sandbox: they are about its kernel.
func TestConfinementUnderGVisor(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "tests")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "sandyard/guest/beneath")
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

// TestListingUnderGVisor holds README to what it says of gVisor's release of 2022, whose statx knows no AT_NO_AUTOMOUNT:
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
