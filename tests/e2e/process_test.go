package e2e_test

import (
	"os/exec"
	"testing"

	"sandyard/dev/testenv"
)

// process is one running program.
type process = testenv.Process

// startProcess runs a program whose environment is env alone.
func startProcess(t testing.TB, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	return testenv.StartProcess(t, dir, env, name, exec.Command(program(t, name), args...))
}
