//go:build e2b

package e2b

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/auth"
	"sandyard/models"
)

// toolsImage is that of sandboxes which serve the agents' tools themselves.
const toolsImage = "sandyard/e2b-tools:test"

// TestMCPInside has the official Python client use the tools that a sandbox serves itself, at the mcp_url of the agent
// API.
func TestMCPInside(t *testing.T) {
	t.Parallel()
	makeToolsImage(t)
	s := newStack(t)
	hash, err := auth.HashPassword("TestPass123!")
	check(t, err)
	_, err = s.store.CreateUser(t.Context(), "default", "agent", hash, models.RoleMember)
	check(t, err)
	s.ask("PUT", "/v1/templates/tools", map[string]any{
		"image": toolsImage, "start_command": "exec sandbox-tools", "mcp_port": 6060, "ports": []int{6060},
		"ready": map[string]any{"http": map[string]any{"port": 6060, "path": "/health"}, "timeout_seconds": 60},
	}, 200)
	s.drive("venv/bin/python", "inside.py", "python/inside.py", "http://"+s.api.Addr().String(), s.edge.Addr().String())
}

// makeToolsImage adds the tools' program to the image of the template python, as images/all-in-one has it.
func makeToolsImage(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sandbox-tools")
	build := exec.Command(
		"go",
		"build",
		"-trimpath",
		"-buildvcs=false",
		"-ldflags",
		"-s -w",
		"-o",
		program,
		"./cmd/sandbox-tools",
	)
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tools' program: %v\n%s", err, out)
	}
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	made := docker("create", "--network", "none", "sandyard/python:default")
	docker("cp", program, made+":/usr/bin/sandbox-tools")
	docker("commit", made, toolsImage)
	docker("rm", made)
	t.Cleanup(
		func() { _ = exec.Command("docker", "rmi", "--force", toolsImage).Run() },
	) // a machine's own engine keeps nothing
}
