package saferoot

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mkdir makes a directory.
func (r *Root) Mkdir(name string, perm fs.FileMode) error {
	return r.at("mkdir", name, func(parent int, last string) error { return mkdir(parent, last, perm) })
}

// MkdirAll makes a directory with its parents. One that is there stays as it is.
func (r *Root) MkdirAll(name string, perm fs.FileMode) error {
	make := func(parent int, name string) (int, error) {
		fd, err := step(parent, name)
		if !errors.Is(err, unix.ENOENT) {
			return fd, err
		}
		if err := mkdir(parent, name, perm); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
		return step(parent, name)
	}
	err := r.enter(name, make, func(parent int, last string) error {
		fd, err := make(parent, last)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: underlying(err)}
	}
	return nil
}

func mkdir(parent int, name string, perm fs.FileMode) error {
	return retryOnly(func() error { return unix.Mkdirat(parent, name, uint32(perm.Perm())) })
}

// Symlink makes a link that leads to target, wherever that is.
func (r *Root) Symlink(target, name string) error {
	return r.at("symlink", name, func(parent int, last string) error {
		return retryOnly(func() error { return unix.Symlinkat(target, parent, last) })
	})
}

// Link gives a file another name.
func (r *Root) Link(from, to string) error {
	return r.both("link", from, to, func(p pair) error {
		return retryOnly(func() error { return unix.Linkat(p.fromDir, p.from, p.toDir, p.to, 0) })
	})
}

// Rename gives what has one name another, and replaces what had that, unless it is a directory: EEXIST.
func (r *Root) Rename(from, to string) error {
	return r.both("rename", from, to, func(p pair) error {
		if same, err := p.directories(); same || err != nil {
			return err
		}
		return retryOnly(func() error { return unix.Renameat(p.fromDir, p.from, p.toDir, p.to) })
	})
}

// pair is two names, each in the directory that it is in.
type pair struct {
	fromDir, toDir int
	from, to       string
}

func (r *Root) both(op, from, to string, call func(pair) error) error {
	err := r.enter(from, step, func(fromDir int, fromLast string) error {
		return r.enter(to, step, func(toDir int, toLast string) error {
			return call(pair{fromDir: fromDir, toDir: toDir, from: fromLast, to: toLast})
		})
	})
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: from, New: to, Err: underlying(err)}
}

// directories refuses to replace a directory, and says whether it is one that is renamed to itself: then nothing is to
// be done, which gVisor does not know.
func (p pair) directories() (same bool, err error) {
	var there, moved unix.Stat_t
	if err := lstat(p.toDir, p.to, &there); err != nil || there.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil //nolint:nilerr // the renaming itself tells of what is wrong
	}
	if err := lstat(p.fromDir, p.from, &moved); err != nil {
		return false, err
	}
	if there.Dev == moved.Dev && there.Ino == moved.Ino {
		return true, nil
	}
	return false, unix.EEXIST
}

func lstat(parent int, name string, stat *unix.Stat_t) error {
	return retryOnly(func() error { return unix.Fstatat(parent, name, stat, unix.AT_SYMLINK_NOFOLLOW) })
}

// SetTimes sets the times of a file, or of a link itself.
func (r *Root) SetTimes(name string, accessed, modified time.Time) error {
	return r.at("chtimes", name, func(parent int, last string) error {
		times := []unix.Timespec{unix.NsecToTimespec(accessed.UnixNano()), unix.NsecToTimespec(modified.UnixNano())}
		return retryOnly(func() error { return unix.UtimesNanoAt(parent, last, times, unix.AT_SYMLINK_NOFOLLOW) })
	})
}

// Remove removes a file or a link.
func (r *Root) Remove(name string) error {
	return r.at("remove", name, func(parent int, last string) error { return unlink(parent, last, 0) })
}

func unlink(parent int, name string, flags int) error {
	return retryOnly(func() error { return unix.Unlinkat(parent, name, flags) })
}
