package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/local/shim"
)

// programs is a copy of the guest's programs named by their content, so that sandboxes keep theirs when a new release
// is put in place. Who uses it holds a shared lock on the directory.
type programs struct {
	dir  string
	lock *os.File
}

// openPrograms makes the copy where there is none, and removes copies that nobody uses any more.
func openPrograms(data, from string) (*programs, error) {
	files := map[string][]byte{}
	sum := sha256.New()
	for _, name := range []string{shim.GuestProgram, shim.SupervisorProgram, shim.Program} {
		binary, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return nil, providers.Invalid.Errorf("guest program not found; run make build: %w", err)
		}
		files[name] = binary
		fmt.Fprintf(sum, "%s %d\n", name, len(binary))
		sum.Write(binary)
	}
	all := filepath.Join(data, "programs")
	p := &programs{dir: filepath.Join(all, hex.EncodeToString(sum.Sum(nil)[:8]))}
	if err := p.take(files); err != nil {
		return nil, providers.Unavailable.Errorf("copy the guest's programs: %w", err)
	}
	sweepPrograms(all)
	return p, nil
}

// take copies and locks. Between the two somebody may have found the copy unused and removed it.
func (p *programs) take(files map[string][]byte) error {
	for {
		if err := p.copy(files); err != nil {
			return err
		}
		f, err := os.Open(p.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
			return errors.Join(err, f.Close())
		}
		if sameFile(f, p.dir) {
			p.lock = f
			return nil
		}
		_ = f.Close()
	}
}

func (p *programs) copy(files map[string][]byte) error {
	if _, err := os.Stat(p.dir); err == nil {
		return nil
	}
	draft, err := os.MkdirTemp(filepath.Dir(p.dir), ".draft-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	if err := os.Chmod(draft, 0o755); err != nil {
		return err
	}
	for name, binary := range files {
		if err := writeProgram(filepath.Join(draft, name), binary); err != nil {
			return err
		}
	}
	if err := os.Rename(draft, p.dir); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// writeProgram lets nobody fork meanwhile: the child would hold the file open for writing for a moment, in which it cannot
// be run.
func writeProgram(file string, binary []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(file, binary, 0o555)
}

func sweepPrograms(all string) {
	found, err := os.ReadDir(all)
	if err != nil {
		return
	}
	for _, entry := range found {
		dir := filepath.Join(all, entry.Name())
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if entry.Name()[0] != '.' && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}

// sameFile says whether path still names the open file f.
func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// Close lets the copy go.
func (p *programs) Close() error { return p.lock.Close() }
