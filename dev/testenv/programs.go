package testenv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// supervisor is the one program with another name than its package's.
const supervisor = "sup"

// BuildPrograms compiles programs of the repository into dir, laid out as a deployment has them: api, worker, scheduler,
// sandyard, guest, sup, sandbox-shim. Tests of processes prove nothing about binaries that lie around. The commit's name
// is left out: it would give every commit another guest.
//
// `make test` has just built the same into bin/. Of a copy that is up to date go build links nothing again, and with the
// same GOFLAGS it compiles nothing again.
func BuildPrograms(dir string, names ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	var packages []string
	for _, name := range names {
		err := copyProgram(filepath.Join(root, "bin", name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy the program: %w", err)
		}
		if name != supervisor {
			packages = append(packages, "sandyard/cmd/"+name)
		}
	}
	if len(packages) > 0 {
		if err := compile(dir+string(filepath.Separator), packages...); err != nil {
			return err
		}
	}
	if slices.Contains(names, supervisor) {
		return compile(filepath.Join(dir, supervisor), "sandyard/cmd/guest-sup")
	}
	return nil
}

// moduleRoot is the directory of go.mod, at or above the working directory: tests run in that of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("no go.mod at or above the working directory")
		}
		dir = above
	}
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func compile(to string, packages ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
