package process

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
)

// TestABusyMachineMakesNoTreeOutrunTheWalk: a tree that stands still is stopped and killed, however long that takes. Its
// sandbox's other commands would be killed with one that outruns the walk.
func TestABusyMachineMakesNoTreeOutrunTheWalk(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "for i in 1 2 3; do sleep 1000 >&- & done; echo up; wait; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	s := &supervisorProcess{pid: cmd.Process.Pid}
	h := &Host{sups: map[int]*supervisorProcess{s.pid: s}}
	if n := len(h.tree(s)); n != 3 {
		t.Fatalf("%d processes are below it", n)
	}
	if !h.stopTree(s, 0) {
		t.Fatal("a tree that stands still outran the walk")
	}
	if err := cmd.Wait(); err != nil { // the shell ends when its children have
		t.Error(err)
	}
}
