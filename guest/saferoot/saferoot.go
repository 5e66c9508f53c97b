// Package saferoot reaches what lies below a directory and nothing else. It follows no symbolic link, neither on the
// way nor at its end, so code that swaps a directory for a link meanwhile gains nothing.
//
// os.Root promises as much where the kernel heeds O_NOFOLLOW. gVisor's, at least until December 2022, follows a link
// that is opened with O_NOFOLLOW and O_DIRECTORY together, which is how os.Root opens directories. Here no call has
// both: directories are opened with O_PATH, which yields the link itself, and then looked at. No terminal that is
// opened becomes the one that controls the process.
package saferoot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is a directory. Its methods take paths below it, without ".." and with "." for itself; a symbolic link on the
// way is answered with ELOOP, like one at the end that would have to be followed. It may be closed while others use it.
type Root struct{ dir *os.File }

// Open opens a directory whose own path nobody hostile can change.
func Open(path string) (*Root, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Root{os.NewFile(uintptr(fd), path)}, nil
}

// Close closes the directory.
func (r *Root) Close() error { return r.dir.Close() }

// OpenRoot opens a directory as a root of its own.
func (r *Root) OpenRoot(name string) (*Root, error) {
	var opened *Root
	err := r.at("open", name, func(parent int, last string) error {
		fd, err := step(parent, last)
		if err == nil {
			opened = &Root{os.NewFile(uintptr(fd), filepath.Join(r.dir.Name(), name))}
		}
		return err
	})
	return opened, err
}

// OpenFile opens a file, with the flags of open(2). What would wait for somebody else, as a FIFO does, is opened at
// once where the flags hold O_NONBLOCK.
func (r *Root) OpenFile(name string, flags int, perm fs.FileMode) (*os.File, error) {
	return r.open(name, flags, perm, func(*unix.Stat_t) error { return nil })
}

// OpenDir opens a directory for reading.
func (r *Root) OpenDir(name string) (*os.File, error) {
	return r.open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0, isDirectory)
}

func (r *Root) open(name string, flags int, perm fs.FileMode, check func(*unix.Stat_t) error) (*os.File, error) {
	var file *os.File
	err := r.at("open", name, func(parent int, last string) error {
		fd, err := openChecked(parent, last, flags, perm, check)
		if err == nil {
			file = os.NewFile(uintptr(fd), filepath.Join(r.dir.Name(), name))
		}
		return err
	})
	return file, err
}

// Lstat describes what has the name, also if it is a link.
func (r *Root) Lstat(name string) (fs.FileInfo, error) {
	var info fs.FileInfo
	err := r.at("stat", name, func(parent int, last string) error {
		fd, err := openat(parent, last, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), last)
		info, err = file.Stat()
		return errors.Join(err, file.Close())
	})
	return info, err
}

// Readlink returns where a link leads to.
func (r *Root) Readlink(name string) (string, error) {
	target := make([]byte, unix.PathMax)
	err := r.at("readlink", name, func(parent int, last string) error {
		n, err := retry(func() (int, error) { return unix.Readlinkat(parent, last, target) })
		target = target[:max(n, 0)]
		return err
	})
	return string(target), err
}

// at calls with the directory that name's last element is in, and that element.
func (r *Root) at(op, name string, call func(parent int, last string) error) error {
	err := r.enter(name, step, call)
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: underlying(err)}
}

func (r *Root) enter(
	name string,
	step func(parent int, name string) (int, error),
	call func(parent int, last string) error,
) error {
	if !filepath.IsLocal(name) {
		return unix.EXDEV
	}
	raw, err := r.dir.SyscallConn()
	if err != nil {
		return err
	}
	var called error
	if raw.Control(func(top uintptr) { called = descend(int(top), filepath.Clean(name), step, call) }) != nil {
		return fs.ErrClosed
	}
	return called
}

func descend(
	top int,
	name string,
	step func(parent int, name string) (int, error),
	call func(parent int, last string) error,
) error {
	parent := top
	defer func() {
		if parent != top {
			_ = unix.Close(parent)
		}
	}()
	for {
		first, rest, more := strings.Cut(name, "/")
		if !more {
			return call(parent, first)
		}
		next, err := step(parent, first)
		if err != nil {
			return err
		}
		if parent != top {
			_ = unix.Close(parent)
		}
		parent, name = next, rest
	}
}

// step opens a directory to go on from.
func step(parent int, name string) (int, error) {
	return openChecked(parent, name, unix.O_PATH, 0, isDirectory)
}

func openChecked(parent int, name string, flags int, perm fs.FileMode, check func(*unix.Stat_t) error) (int, error) {
	fd, err := openat(parent, name, flags, perm)
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil {
		err = check(&stat)
	}
	if err == nil && flags&unix.O_NONBLOCK != 0 {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func openat(parent int, name string, flags int, perm fs.FileMode) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(parent, name, flags|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(perm.Perm()))
	})
}

func isDirectory(stat *unix.Stat_t) error {
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return nil
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENOTDIR
}

// retry repeats what a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func retryOnly(call func() error) error {
	_, err := retry(func() (int, error) { return 0, call() })
	return err
}

// underlying is the kernel's own error of those that were joined, for a path error wraps one.
func underlying(err error) error {
	if number, ok := errors.AsType[unix.Errno](err); ok {
		return number
	}
	return err
}
