// Package files is the guest's file service: it reads and changes files below the sandbox's roots and nowhere else, but
// for those who read as envd's clients do: see [Tree.AsEnvd].
//
// A path is first followed by name, so that a mistake gets a clear answer and links inside the roots work, and then
// opened through a [saferoot.Root], so that code in the sandbox which swaps a directory for a link meanwhile gains
// nothing.
package files

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"sandyard/guest/protocol"
)

const (
	maxPath  = 4095 // bytes, without the terminating NUL
	maxName  = 255
	maxLinks = 40 // followed on the way to one file, as the kernel does

	procDir = "/proc"
)

// envdHome is the home directory in E2B's own sandboxes, which programs for these name.
const envdHome = "/home/user"

// Tree is the part of the file system that is served.
type Tree struct {
	*state

	asEnvd bool
}

// state is what all ways of serving a part share.
type state struct {
	roots   []string
	workDir atomic.Pointer[string]
	home    func() string // nil = the work directory
	editor  editor
}

// NewTree serves what is below roots, absolute paths; relative paths start at workDir.
func NewTree(roots []string, workDir string) *Tree {
	t := &Tree{state: &state{}}
	t.SetWorkDir(workDir)
	for _, r := range roots {
		t.roots = append(t.roots, filepath.Clean(r))
	}
	return t
}

// SetHome says where the home directory is, which may change. What is no absolute path is the work directory. It is
// called before the tree is used.
func (t *Tree) SetHome(home func() string) { t.home = home }

// AsEnvd serves the same part to envd's clients, and reads paths as they mean them: an empty one is the work directory,
// and /home/user the home directory, if the sandbox has no such directory. Stat, List and Open reach all that the
// sandbox's user may read, but for what the kernel tells of processes, among which is the guest.
func (t *Tree) AsEnvd() *Tree { return &Tree{state: t.state, asEnvd: true} }

// SetWorkDir changes where relative paths start: at an absolute path.
func (t *Tree) SetWorkDir(dir string) {
	dir = filepath.Clean(dir)
	t.workDir.Store(&dir)
}

// place is a path that was found to be inside a root.
type place struct {
	abs  string // for the user
	root string
	rel  string // below root; "." for the root itself

	apart bool // from the roots that are served
}

// locate resolves a path; with follow also when its last element is a link. The path need not exist.
func (t *Tree) locate(path string, follow bool) (place, error) {
	abs, err := t.absolute(path)
	if err != nil {
		return place{}, err
	}
	if _, inside := t.within(abs); !inside {
		return place{}, t.outside(path)
	}
	resolved, err := resolve(abs, follow)
	if err != nil {
		return place{}, pathError(err, path)
	}
	p, inside := t.within(resolved)
	if !inside {
		return place{}, protocol.Errorf(
			protocol.ReasonInvalidPath,
			"path '%s' leaves %s through a symbolic link",
			path,
			t.allowed(),
		)
	}
	return p, nil
}

// locateToRead is locate for calls that change nothing.
func (t *Tree) locateToRead(path string, follow bool) (place, error) {
	if !t.asEnvd {
		return t.locate(path, follow)
	}
	abs, err := t.absolute(path)
	if err != nil {
		return place{}, err
	}
	resolved, err := resolve(abs, follow)
	if err != nil {
		return place{}, pathError(err, path)
	}
	if p, inside := t.within(resolved); inside {
		return p, nil
	}
	if strings.HasPrefix(resolved, procDir+"/") {
		return place{}, protocol.Errorf(protocol.ReasonDenied, "path '%s' describes processes; read it with a command", path)
	}
	return place{abs: resolved, root: "/", rel: cmp.Or(strings.TrimPrefix(resolved, "/"), "."), apart: true}, nil
}

// Absolute is what a path means. A leading ~ is the home directory.
func (t *Tree) Absolute(path string) (string, error) { return t.absolute(path) }

func (t *Tree) absolute(path string) (string, error) {
	path, err := t.expand(path)
	switch {
	case err != nil:
		return "", err
	case path == "":
		return "", protocol.Errorf(protocol.ReasonInvalidPath, "the path is empty")
	case strings.ContainsRune(path, 0):
		return "", protocol.Errorf(protocol.ReasonInvalidPath, "the path holds a NUL byte")
	case len(path) > maxPath:
		return "", protocol.Errorf(protocol.ReasonInvalidPath, "the path is longer than %d bytes", maxPath)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(*t.workDir.Load(), path)
	}
	path = filepath.Clean(path)
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxName {
			return "", protocol.Errorf(protocol.ReasonInvalidPath, "a name in the path is longer than %d bytes", maxName)
		}
	}
	return path, nil
}

// expand reads what stands for another path.
func (t *Tree) expand(path string) (string, error) {
	if strings.HasPrefix(path, "~") {
		path = protocol.InHome(path, t.homeDir())
	}
	switch {
	case !t.asEnvd:
		return path, nil
	case path == "":
		return ".", nil
	case path[0] == '~':
		return "", protocol.Errorf(
			protocol.ReasonInvalidPath,
			"path '%s' begins with the home directory of another user; for a file of that name write './%s'",
			path,
			path,
		)
	}
	if rest, inHome := strings.CutPrefix(path, envdHome); inHome && (rest == "" || rest[0] == '/') && !exists(envdHome) {
		return t.homeDir() + rest, nil
	}
	return path, nil
}

func (t *Tree) homeDir() string {
	if t.home != nil {
		if dir := t.home(); filepath.IsAbs(dir) {
			return dir
		}
	}
	return *t.workDir.Load()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (t *Tree) within(abs string) (place, bool) {
	for _, root := range t.roots {
		rel, err := filepath.Rel(root, abs)
		if err == nil && filepath.IsLocal(rel) {
			return place{abs: abs, root: root, rel: rel}, true
		}
	}
	return place{}, false
}

func (t *Tree) outside(path string) error {
	return protocol.Errorf(protocol.ReasonInvalidPath, "path '%s' is outside of %s", path, t.allowed())
}

func (t *Tree) allowed() string { return strings.Join(t.roots, " and ") }

// resolve follows the links in an absolute clean path. Elements that do not exist stay as they are.
func resolve(path string, follow bool) (string, error) {
	done, rest := "/", strings.TrimPrefix(path, "/")
	for links := 0; rest != ""; {
		name, after, more := strings.Cut(rest, "/")
		next := filepath.Join(done, name)
		target, isLink := "", false
		if (more || follow) && done != procDir && !strings.HasPrefix(done, procDir+"/") { // whose links are the guest's own
			target, isLink = readLink(next)
		}
		if !isLink {
			done, rest = next, after
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(done, target)
		}
		done, rest = "/", strings.TrimPrefix(filepath.Join(target, after), "/")
	}
	return done, nil
}

func readLink(path string) (string, bool) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return "", false
	}
	target, err := os.Readlink(path)
	return target, err == nil
}

// pathError gives an error of the file system its reason.
func pathError(err error, path string) error {
	var refused *protocol.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, fs.ErrNotExist):
		return protocol.Errorf(protocol.ReasonFileNotFound, "path '%s' does not exist", path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return protocol.Errorf(protocol.ReasonDenied, "path '%s': permission denied", path)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return protocol.Errorf(protocol.ReasonNoSpace, "not enough disk space for '%s'", path)
	case errors.Is(err, syscall.ENOTDIR):
		return protocol.Errorf(protocol.ReasonNotADir, "a part of path '%s' is not a directory", path)
	case errors.Is(err, syscall.EISDIR):
		return protocol.Errorf(protocol.ReasonNotAFile, "path '%s' is a directory", path)
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return protocol.Errorf(protocol.ReasonExists, "path '%s' already exists", path)
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EXDEV):
		return protocol.Errorf(protocol.ReasonInvalidPath, "path '%s': %v", path, errno(err))
	default:
		return protocol.Errorf(protocol.ReasonInternal, "path '%s': %v", path, err)
	}
}

func errno(err error) syscall.Errno {
	e, _ := errors.AsType[syscall.Errno](err)
	return e
}
