package saferoot

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// removedAtOnce is how many names of a directory are held while they are removed.
const removedAtOnce = 1024

// RemoveAll removes what has the name, with all below it. It goes on behind what cannot be removed, and answers with
// the first error; that nothing has the name is none.
func (r *Root) RemoveAll(name string) error { return r.at("remove", name, removeAll) }

func removeAll(parent int, name string) error {
	err := unlink(parent, name, 0)
	// A directory whose parent its owner may not write to says EACCES, but may still be emptied.
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return unlessGone(err)
	}
	emptied := empty(parent, name)
	if errors.Is(emptied, unix.ENOTDIR) || errors.Is(emptied, unix.ELOOP) {
		return err
	}
	removed := unlessGone(unlink(parent, name, unix.AT_REMOVEDIR))
	if removed != nil && emptied != nil {
		return emptied
	}
	return removed
}

func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// empty removes what is in a directory. To remove entries may change the order of those that are left, so a directory
// is opened anew after each portion, until one holds nothing that could be removed.
func empty(parent int, name string) error {
	for {
		portion, err := emptyPortion(parent, name)
		if portion.read < removedAtOnce || portion.removed == 0 {
			return unlessGone(err)
		}
	}
}

type portion struct{ read, removed int }

func emptyPortion(parent int, name string) (portion, error) {
	fd, err := openChecked(parent, name, unix.O_RDONLY|unix.O_NONBLOCK, 0, isDirectory)
	if err != nil {
		return portion{}, err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(removedAtOnce)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	p := portion{read: len(names)}
	for _, child := range names {
		if failed := removeAll(int(dir.Fd()), child); failed == nil {
			p.removed++
		} else if err == nil {
			err = failed
		}
	}
	return p, err
}
