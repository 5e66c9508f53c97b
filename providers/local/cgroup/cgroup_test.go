package cgroup_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers/local/cgroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGroup(t *testing.T) cgroup.Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: control groups need root")
	}
	h, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	g := cgroup.Group{Hierarchy: h, Name: "sandyard-test-" + rand.Text()}
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

// start starts a script in the group.
func start(t *testing.T, g cgroup.Group, script string) *exec.Cmd {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ownGroups(t)
	cmd := exec.Command("sh", "-c", script)
	err := g.Start(func(group int) error {
		if group >= 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group}
		}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := ownGroups(t); after != before {
		t.Errorf("the starter has moved from\n%s to\n%s", before, after)
	}
	return cmd
}

func ownGroups(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
	cmd := start(t, g, "exec sleep 1000")
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
	if err := g.Make(cgroup.Limits{Pids: 2}); err != nil {
		t.Fatal(err)
	}
	if err := start(t, g, "sleep 60 & sleep 60 & exit 0").Wait(); err == nil {
		t.Error("a third process was started")
	}
}

func TestLimitOfMemory(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.Make(cgroup.Limits{Memory: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := start(t, g, "head -c 64m /dev/zero | exec tail >/dev/null").Wait(); err == nil {
		t.Error("64 MiB fit into 16")
	}
}

// TestAGroupIsAskedWhileItGoes: a group that somebody removes meanwhile is not frozen and has no processes; that is no error.
func TestAGroupIsAskedWhileItGoes(t *testing.T) {
	g := newGroup(t)
	done := make(chan struct{})
	var asking sync.WaitGroup
	for name, ask := range map[string]func() (bool, error){"frozen": g.Frozen, "strike": g.Strike} {
		asking.Go(func() {
			for {
				if _, err := ask(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 200 {
		if err := g.Make(cgroup.Limits{}); err != nil {
			t.Error(err)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(done)
	asking.Wait()
}
