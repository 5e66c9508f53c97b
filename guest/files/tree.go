package files

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"

	"golang.org/x/sys/unix"
)

// MaxEntries is how many entries one List answers with at most.
const MaxEntries = 10_000

// Stat describes a path. Of a symbolic link it describes the link.
func (t *Tree) Stat(path string) (Entry, error) {
	return toRead(t, path, false, func(root *saferoot.Root, p place) (Entry, error) { return entryAt(root, p) })
}

// MakeDir makes a directory with its parents. An existing directory is a success.
func (t *Tree) MakeDir(path string) (Entry, error) {
	return inRoot(t, path, true, func(root *saferoot.Root, p place) (Entry, error) {
		if info, err := root.Lstat(p.rel); err == nil && !info.IsDir() {
			return Entry{}, protocol.Errorf(protocol.ReasonNotADir, "path '%s' exists and is not a directory", path)
		}
		if err := root.MkdirAll(p.rel, 0o755); err != nil {
			return Entry{}, err
		}
		return entryAt(root, p)
	})
}

// Remove deletes a file, a link or a directory with all it holds.
func (t *Tree) Remove(path string) error {
	_, err := inRoot(t, path, false, func(root *saferoot.Root, p place) (struct{}, error) {
		if p.rel == "." {
			return struct{}{}, protocol.Errorf(protocol.ReasonInvalidPath, "'%s' itself cannot be removed", p.abs)
		}
		if _, err := root.Lstat(p.rel); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, root.RemoveAll(p.rel)
	})
	return err
}

// Move renames a file, link or directory inside one root, replacing a file that is in the way.
func (t *Tree) Move(from, to string) (Entry, error) {
	target, err := t.locate(to, false)
	if err != nil {
		return Entry{}, err
	}
	return inRoot(t, from, false, func(root *saferoot.Root, source place) (Entry, error) {
		if source.rel == "." || target.rel == "." {
			return Entry{}, protocol.Errorf(protocol.ReasonInvalidPath, "'%s' itself cannot be moved or replaced", source.root)
		}
		if source.root != target.root {
			return Entry{}, protocol.Errorf(
				protocol.ReasonInvalidPath,
				"'%s' cannot be moved from %s to %s; copy it",
				from,
				source.root,
				target.root,
			)
		}
		if _, err := root.Lstat(source.rel); err != nil {
			return Entry{}, err
		}
		if err := root.MkdirAll(filepath.Dir(target.rel), 0o755); err != nil {
			return Entry{}, pathError(err, to)
		}
		if err := root.Rename(source.rel, target.rel); err != nil {
			return Entry{}, pathError(err, to)
		}
		return entryAt(root, target)
	})
}

// List lists a directory depth levels deep, sorted by path. Links are listed, not followed.
func (t *Tree) List(path string, depth int) ([]Entry, error) {
	return toRead(t, path, true, func(root *saferoot.Root, p place) ([]Entry, error) {
		info, err := root.Lstat(p.rel)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, protocol.Errorf(protocol.ReasonNotADir, "path '%s' is not a directory", path)
		}
		l := lister{root: root, describe: newDescriber()}
		err = l.list(p, max(depth, 1))
		slices.SortFunc(l.entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
		return l.entries, err
	})
}

type lister struct {
	root     *saferoot.Root
	describe *describer
	entries  []Entry
}

func (l *lister) list(dir place, depth int) error {
	children, err := l.read(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		p := dir.join(child.Name())
		entry, err := l.describe.entry(l.root, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		l.entries = append(l.entries, entry)
		if !child.IsDir() || depth == 1 {
			continue
		}
		if err := l.list(p, depth-1); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *lister) read(dir place) ([]os.DirEntry, error) {
	f, err := l.root.OpenDir(dir.rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := lawful(f, dir); err != nil {
		return nil, err
	}
	room := MaxEntries - len(l.entries)
	children, err := f.ReadDir(room + 1)
	if len(children) > room {
		return nil, protocol.Errorf(
			protocol.ReasonTooLarge,
			"'%s' holds more than %d entries; list a smaller part",
			dir.abs,
			MaxEntries,
		)
	}
	if len(children) > 0 || isEOF(err) {
		err = nil
	}
	return children, err
}

// lawful refuses what the kernel tells of processes, wherever that is found.
func lawful(f *os.File, p place) error {
	if !p.apart {
		return nil
	}
	var system unix.Statfs_t
	err := unix.Fstatfs(int(f.Fd()), &system)
	if err == nil && system.Type == unix.PROC_SUPER_MAGIC {
		return unix.EACCES
	}
	return err
}

// inRoot runs f with the opened root of path and gives its error a reason.
func inRoot[T any](t *Tree, path string, follow bool, f func(*saferoot.Root, place) (T, error)) (T, error) {
	p, err := t.locate(path, follow)
	return at(p, err, path, f)
}

// toRead is inRoot for calls that change nothing.
func toRead[T any](t *Tree, path string, follow bool, f func(*saferoot.Root, place) (T, error)) (T, error) {
	p, err := t.locateToRead(path, follow)
	return at(p, err, path, f)
}

func at[T any](p place, err error, path string, f func(*saferoot.Root, place) (T, error)) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	root, err := saferoot.Open(p.root)
	if err != nil {
		return none, pathError(err, path)
	}
	defer root.Close()
	result, err := f(root, p)
	if err != nil {
		return none, pathError(err, path)
	}
	return result, nil
}

// Directory returns an opened root that holds the directory path, and the directory's place below it. The caller closes
// the root.
func (t *Tree) Directory(path string) (root *saferoot.Root, rel, abs string, err error) {
	p, err := t.locate(path, true)
	if err != nil {
		return nil, "", "", err
	}
	root, err = saferoot.Open(p.root)
	if err != nil {
		return nil, "", "", pathError(err, path)
	}
	info, err := root.Lstat(p.rel)
	if err == nil && !info.IsDir() {
		err = protocol.Errorf(protocol.ReasonNotADir, "path '%s' is not a directory", path)
	}
	if err != nil {
		return nil, "", "", errors.Join(pathError(err, path), root.Close())
	}
	return root, p.rel, p.abs, nil
}
