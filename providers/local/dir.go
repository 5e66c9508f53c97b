package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/providers"
)

// goneMark begins the name of a directory whose sandbox is removed already.
const goneMark = ".gone-"

// prepareDir makes the data directory and clears what a removal that was cut off has left.
func (p *Provider) prepareDir() error {
	for _, dir := range []string{"programs", "images", "fleets"} {
		if err := os.MkdirAll(filepath.Join(p.cfg.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	// The sandboxes' own directories hold sockets that lead into them.
	if err := os.MkdirAll(p.fleetDir(), 0o700); err != nil {
		return err
	}
	if err := makeID(filepath.Join(p.cfg.Dir, "id")); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(p.fleetDir(), goneMark+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// makeID gives the data directory an identity, once.
func makeID(file string) error {
	draft := file + "-" + rand.Text()
	if err := os.WriteFile(draft, []byte(strings.ToLower(rand.Text())), 0o644); err != nil {
		return err
	}
	defer os.Remove(draft)
	if err := os.Link(draft, file); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func readID(file string) (string, error) {
	text, err := os.ReadFile(file)
	return string(text), err
}

// fleetDir holds the directories of the fleet's sandboxes. A fleet's name may hold anything, so its hash stands for it.
func (p *Provider) fleetDir() string {
	sum := sha256.Sum256([]byte(p.cfg.Fleet))
	return filepath.Join(p.cfg.Dir, "fleets", hex.EncodeToString(sum[:8]))
}

// groupName is unlike that of any other sandbox on this machine, also of another data directory.
func (p *Provider) groupName(id string) string {
	sum := sha256.Sum256([]byte(p.fleetDir()))
	return "sandyard-" + hex.EncodeToString(sum[:8]) + "-" + id
}

const (
	lockFile = "lock"
	lockPoll = 2 * time.Millisecond
)

// lock lets one change of a sandbox happen at a time, on the whole machine. With make it makes the sandbox's directory
// where there is none, and else answers NotFound. A directory that was removed while we waited does not count.
func (p *Provider) lock(ctx context.Context, id string, make bool) (unlock func(), err error) {
	dir := filepath.Join(p.fleetDir(), id)
	for {
		f, err := openLock(dir, make)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, filepath.Join(dir, lockFile)) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, providers.Internal.Errorf("lock the sandbox: %w", err)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, providers.Unavailable.Errorf("wait for another change of the sandbox: %w", ctx.Err())
		}
	}
}

func openLock(dir string, make bool) (*os.File, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, providers.Internal.Errorf("lock the sandbox: %w", err)
		case !make:
			return nil, providers.ErrNotFound
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, providers.Internal.Errorf("create the sandbox's directory: %w", err)
		}
	}
}

// removeDir removes a sandbox's directory, in one step for everybody who looks.
func (p *Provider) removeDir(b box) error {
	gone := filepath.Join(p.fleetDir(), goneMark+rand.Text())
	if err := os.Rename(b.dir, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(gone)
}
