package cgroup_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"sandyard/providers/local/cgroup"
)

func newGroup(t *testing.T) cgroup.Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: control groups need root")
	}
	h, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	g := h.Group("sandyard-test-" + rand.Text())
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := g.Kill(ctx); err != nil {
			t.Errorf("kill: %v", err)
		}
		if err := g.Remove(ctx); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return g
}

// enter starts a shell that goes on with script once it is in the group.
func enter(t *testing.T, g cgroup.Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read go; "+script)
	start, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, entrance := range g.Entrances() {
		if err := os.WriteFile(entrance, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := start.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestFreezeAndKill(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if frozen, err := g.Frozen(); frozen || err != nil {
		t.Errorf("a group that does not exist: frozen %v, %v", frozen, err)
	}
	for range 2 {
		if err := g.Make(cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, Pids: 10}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := enter(t, g, "exec sleep 1000")
	for range 2 {
		if err := g.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if frozen, err := g.Frozen(); !frozen || err != nil {
			t.Errorf("frozen %v, %v", frozen, err)
		}
	}
	for range 2 {
		if err := g.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if frozen, err := g.Frozen(); frozen || err != nil {
			t.Errorf("thawed, yet frozen %v, %v", frozen, err)
		}
	}
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a frozen process was not killed")
	}
	for range 2 {
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimitOfProcesses(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.Make(cgroup.Limits{Pids: 1}); err != nil {
		t.Fatal(err)
	}
	if err := enter(t, g, "sleep 0 & wait $!").Wait(); err == nil {
		t.Error("a second process was started")
	}
}

func TestLimitOfMemory(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.Make(cgroup.Limits{Memory: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := enter(t, g, "head -c 64m /dev/zero | exec tail >/dev/null").Wait(); err == nil {
		t.Error("64 MiB fit into 16")
	}
}
