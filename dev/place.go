package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketPathMax is the longest path the kernel takes for a unix socket (sun_path of 108 bytes with its zero).
	socketPathMax = 107

	// statePath takes the data of a server whose user may not enter the directory it was given.
	statePath = "/var/lib/sandyard"

	lockWait = 10 * time.Second
)

// place is where one server keeps its files: a directory only its owner may enter.
type place struct {
	dir     string
	sockets string
	owner   account
}

// newPlace makes dir ready for a server of that owner whose socket has the given name. Where the owner may not enter
// dir because of a directory above it (root's home), dir becomes a link to a new directory under statePath: widening
// the permissions of directories that are not ours is no business of ours.
func newPlace(dir, socketName string, owner account) (place, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return place{}, fmt.Errorf("find directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return place{}, fmt.Errorf("make directory: %w", err)
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(dir, owner); err != nil {
			return place{}, err
		}
	}
	home, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return place{}, fmt.Errorf("follow %s (remove it to start afresh): %w", dir, err)
	}
	if err := owner.own(home); err != nil {
		return place{}, err
	}
	sockets, err := socketDir(home, socketName, owner)
	return place{dir: home, sockets: sockets, owner: owner}, err
}

func makeDir(dir string, owner account) error {
	if owner.mayEnter(filepath.Dir(dir)) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(statePath, 0o755); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	target, err := os.MkdirTemp(statePath, filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if err := os.Symlink(target, dir); err != nil {
		return fmt.Errorf("link state directory: %w", err)
	}
	return nil
}

// socketDir is dir itself, or a private short-lived directory where a socket's path in dir would be too long.
func socketDir(dir, socketName string, owner account) (string, error) {
	if len(filepath.Join(dir, socketName)) <= socketPathMax {
		return dir, nil
	}
	short, err := os.MkdirTemp("", "sandyard-")
	if err != nil {
		return "", fmt.Errorf("make socket directory: %w", err)
	}
	if len(filepath.Join(short, socketName)) > socketPathMax {
		os.Remove(short)
		return "", fmt.Errorf("%s and the temporary directory are both too long for a socket's path", dir)
	}
	return short, owner.own(short)
}

// lock takes the directory's lock, which a server holds as long as it lives. It waits a little, because the server of
// a process that was just killed takes a moment to end.
func (p place) lock(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("%s: %w", p.dir, ErrInUse)
		case <-tick.C:
		}
	}
}

// release removes the socket directory where it is not the server's own.
func (p place) release() error {
	if p.sockets == p.dir {
		return nil
	}
	return os.RemoveAll(p.sockets)
}

// remove deletes everything the server has.
func (p place) remove() error {
	return os.RemoveAll(p.dir)
}
