//go:build e2b

package e2b

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeBlocksRun runs README's blocks for E2B's clients as they stand there, with a key of Sandyard's own form. Only the
// values of the variables that the first block exports are others: those of the test's installation.
func TestReadmeBlocksRun(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	readme, err := os.ReadFile("../../README.md")
	check(t, err)
	blocks := regexp.MustCompile("(?s)\n```\n(export E2B_[^\n]*\n)?((?:python3|node) .*?)\n```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks for E2B's clients were found in README, want 2", len(blocks))
	}
	const export = "export E2B_API_URL=http://127.0.0.1:8080 E2B_SANDBOX_URL=http://127.0.0.1:8090 E2B_API_KEY=sy_...\n"
	if blocks[0][1] != export {
		t.Errorf("README's first block begins with %q, want the addresses and the key that make run prints", blocks[0][1])
	}
	for _, block := range blocks {
		s.runBlock(block[2])
	}
}

// runBlock gives a block to a shell, where the clients are installed.
func (s *stack) runBlock(block string) {
	s.t.Helper()
	dir := clients(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", block)
	cmd.Dir = dir
	cmd.Env = append(s.env(s.ownKey), "PATH="+filepath.Join(dir, "venv", "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		s.t.Errorf("README's block\n%s\nprinted %q, want hello: %v", block, out, err)
	}
}
