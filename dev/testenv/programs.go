package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildPrograms compiles the programs of the repository at root into dir, laid out as a deployment has them. Tests of
// processes prove nothing about binaries that lie around. The commit's name is left out: it would give every commit
// another guest.
//
// `make test` has just built the same into bin/. Of a copy that is up to date go build links nothing again.
func BuildPrograms(root, dir string, env []string) error {
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "bin"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("copy the programs: %w", err)
	}
	programs := []string{"./cmd/api", "./cmd/worker", "./cmd/scheduler", "./cmd/guest", "./cmd/sandbox-shim", "./cmd/sandyard"}
	if err := compile(root, dir, env, programs...); err != nil {
		return err
	}
	return compile(root, filepath.Join(dir, "sup"), env, "./cmd/guest-sup")
}

func compile(root, to string, env []string, packages ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(env, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
