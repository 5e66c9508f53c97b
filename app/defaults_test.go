package app

import (
	"strings"
	"testing"
	"time"
)

// TestDefaultsOfSandboxesAreChecked: a process names the variable that no sandbox could have.
func TestDefaultsOfSandboxesAreChecked(t *testing.T) {
	t.Parallel()
	good := Sandboxes{
		Provider: "docker", Templates: map[string]string{"python": "image"}, Template: "python", CPUs: 1, MemoryMB: 512, WorkDir: "/workspace",
		ExecTime: 5 * time.Minute, MostCPUs: 8, MostMB: 8192, MostDisk: 4096, MostPids: 4096, BuildDisk: 1,
	}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for variable, spoil := range map[string]func(*Sandboxes){
		"SANDBOX_CPUS must be between":      func(s *Sandboxes) { s.CPUs = -1 },
		"SANDBOX_MEMORY_MB must be between": func(s *Sandboxes) { s.MemoryMB = 1 },
		"SANDBOX_WORK_DIR must be":          func(s *Sandboxes) { s.WorkDir = "work" },
		"EXEC_TIMEOUT must be between":      func(s *Sandboxes) { s.ExecTime = 25 * time.Hour },
		"EXEC_TIMEOUT is 0s":                func(s *Sandboxes) { s.ExecTime = 0 },
		"SANDBOX_MAX_MEMORY_MB is 8192":     func(s *Sandboxes) { s.MemoryMB = 10000 },
	} {
		bad := good
		spoil(&bad)
		if err := bad.validate(); err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%v, want %s", err, variable)
		}
	}
}
