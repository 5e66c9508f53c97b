package e2e_test

import (
	"os/exec"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// process is one running program.
type process = testenv.Process

// startProcess runs a program whose environment is env alone.
func startProcess(t testing.TB, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	return testenv.StartProcess(t, dir, env, name, exec.Command(program(t, name), args...))
}

// eventually waits until ok holds.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain: %s", limit, what)
		}
	}
}
