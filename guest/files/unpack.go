package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

const (
	// maxStripped and maxLater bound what is remembered of an archive.
	maxStripped = 100
	maxLater    = 10_000
	archiveBuf  = 64 << 10
)

// Unpacked is what Unpack has made.
type Unpacked struct {
	Files       int
	Directories int
	Links       int // symbolic and hard
	Bytes       int64
	Stripped    []string // of the first entries that lost a setuid, setgid or sticky bit
}

// Unpack makes the entries of a tar archive, plain or compressed with gzip, below a directory, which is made where
// there is none. Nothing is made outside of it, and nothing through a symbolic link. An entry that would be something
// else than a file, a directory or a link is refused. Each file is replaced in one step; an error leaves what came
// before it.
func (t *Tree) Unpack(path string, from io.Reader) (Unpacked, error) {
	return inRoot(t, path, true, func(root *saferoot.Root, p place) (Unpacked, error) {
		if err := root.MkdirAll(p.rel, 0o755); err != nil {
			return Unpacked{}, err
		}
		dir, err := root.OpenRoot(p.rel)
		if err != nil {
			return Unpacked{}, err
		}
		defer dir.Close()
		u := unpacker{root: dir, source: &upload{r: from}}
		err = u.all()
		return u.made, errors.Join(err, u.settle())
	})
}

type unpacker struct {
	root   *saferoot.Root
	source *upload
	in     *tar.Reader
	made   Unpacked
	count  int
	parent string // the last directory that was seen to be one
	later  []modeOfDir
}

// modeOfDir is that of a directory which its owner could not write in, were it set before the end.
type modeOfDir struct {
	name string
	mode fs.FileMode
}

func (u *unpacker) all() error {
	plain, err := unzipped(u.source)
	if err != nil {
		return u.broken(err)
	}
	u.in = tar.NewReader(plain)
	for {
		h, err := u.in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return u.broken(err)
		}
		if err := u.entry(h); err != nil {
			return err
		}
		u.count++
	}
}

// unzipped looks at the first bytes of an archive.
func unzipped(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, archiveBuf)
	head, err := in.Peek(2)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return nil, errors.New("it is empty")
	case string(head) == "\x1f\x8b":
		return gzip.NewReader(in)
	}
	return in, nil
}

// broken tells an upload that ended too early from an archive that never was one.
func (u *unpacker) broken(err error) error {
	if u.source.err != nil {
		return protocol.Errorf(
			protocol.ReasonInvalid,
			"the upload was interrupted after %d entries: %v",
			u.count,
			u.source.err,
		)
	}
	return protocol.Errorf(
		protocol.ReasonArchive,
		"the body is not a readable tar archive, after %d entries: %v",
		u.count,
		err,
	)
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := localName(h.Name)
	if err != nil {
		return u.refuse(h, "%v", err)
	}
	if err := u.parents(h, name); err != nil {
		return pathError(err, h.Name)
	}
	if h.Mode&0o7000 != 0 && len(u.made.Stripped) < maxStripped {
		u.made.Stripped = append(u.made.Stripped, name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.directory(h, name)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = u.file(h, name)
	case tar.TypeSymlink:
		err = u.symlink(h, name)
	case tar.TypeLink:
		err = u.hardLink(h, name)
	default:
		return u.refuse(h, "is %s; only files, directories and links are unpacked", kindName(h.Typeflag))
	}
	return pathError(err, h.Name)
}

func (u *unpacker) refuse(h *tar.Header, format string, args ...any) error {
	why := protocol.Errorf(protocol.ReasonArchive, format, args...).Message
	return protocol.Errorf(
		protocol.ReasonArchive,
		"entry '%s' %s; the %d entries before it were unpacked",
		h.Name,
		why,
		u.count,
	)
}

func kindName(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a FIFO"
	default:
		return "of an unknown kind"
	}
}

// localName refuses the names that lead elsewhere.
func localName(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("has no name")
	case path.IsAbs(name):
		return "", errors.New("has an absolute name")
	case strings.ContainsRune(name, 0):
		return "", errors.New("has a NUL byte in its name")
	case len(name) > maxPath:
		return "", errors.New("has a name that is too long")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("leaves the directory through '..'")
		}
	}
	return path.Clean(name), nil
}

// parents makes the directories above an entry. A link among them is refused even if it leads to the inside: whoever
// made the archive did not see what it leads to.
func (u *unpacker) parents(h *tar.Header, name string) error {
	dir := path.Dir(name)
	if dir == u.parent || dir == "." {
		return nil
	}
	for i := 0; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		err := u.enter(h, dir[:i])
		if err != nil {
			return err
		}
	}
	u.parent = dir
	return nil
}

// enter makes sure that dir, whose parent is a directory, is one.
func (u *unpacker) enter(h *tar.Header, dir string) error {
	err := u.root.Mkdir(dir, 0o755)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := u.root.Lstat(dir)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return u.refuse(h, "goes through the symbolic link '%s'", dir)
	case !info.IsDir():
		return syscall.ENOTDIR
	}
	return nil
}

func (u *unpacker) directory(h *tar.Header, name string) error {
	if name == "." {
		return nil // the directory itself stays as it is
	}
	if err := u.enter(h, name); err != nil {
		return err
	}
	u.made.Directories++
	mode := fs.FileMode(h.Mode).Perm()
	if mode&0o700 == 0o700 {
		return u.setMode(name, mode)
	}
	if len(u.later) == maxLater {
		return u.refuse(h, "is one of more than %d directories without full access for their owner", maxLater)
	}
	u.later = append(u.later, modeOfDir{name, mode})
	return nil
}

// settle takes rights away that were needed until the end, from the innermost directory outwards.
func (u *unpacker) settle() error {
	for i := len(u.later) - 1; i >= 0; i-- {
		if err := u.setMode(u.later[i].name, u.later[i].mode); err != nil && !gone(err) {
			return pathError(err, u.later[i].name)
		}
	}
	return nil
}

func (u *unpacker) setMode(name string, mode fs.FileMode) error {
	f, err := u.root.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

func (u *unpacker) file(h *tar.Header, name string) error {
	return u.land(h, name, func(temp string) error {
		if err := u.fill(h, temp); err != nil {
			return err
		}
		u.made.Files++
		return u.root.SetTimes(temp, h.ModTime, h.ModTime)
	})
}

func (u *unpacker) fill(h *tar.Header, temp string) error {
	f, err := u.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	content := &upload{r: u.in}
	n, err := io.Copy(f, content)
	u.made.Bytes += n
	if content.err != nil {
		err = u.broken(content.err)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode).Perm()) // not through the umask, and no more than permissions
	}
	return errors.Join(err, f.Close())
}

func (u *unpacker) symlink(h *tar.Header, name string) error {
	if h.Linkname == "" || len(h.Linkname) > maxPath || strings.ContainsRune(h.Linkname, 0) {
		return u.refuse(h, "is a symbolic link to an invalid name")
	}
	u.made.Links++
	return u.land(h, name, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
}

// hardLink links to a file that is there: of the archive or from before.
func (u *unpacker) hardLink(h *tar.Header, name string) error {
	target, err := localName(h.Linkname)
	if err != nil {
		return u.refuse(h, "is a hard link to '%s', which %v", h.Linkname, err)
	}
	for dir := path.Dir(target); dir != "."; dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return u.refuse(h, "is a hard link to '%s', which goes through the symbolic link '%s'", h.Linkname, dir)
		}
	}
	if info, err := u.root.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return u.refuse(h, "is a hard link to '%s', which is not a file in the directory", h.Linkname)
	}
	if target == name {
		return nil
	}
	u.made.Links++
	return u.land(h, name, func(temp string) error { return u.root.Link(target, temp) })
}

// land makes an entry under a temporary name and moves it to its own: what was there is replaced whole, and a file that
// has other names is left to them.
func (u *unpacker) land(h *tar.Header, name string, create func(temp string) error) error {
	prefix := protocol.TempNew
	info, err := u.root.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return u.refuse(h, "would replace a directory")
	case err == nil:
		prefix = protocol.TempReplace
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temp := path.Join(path.Dir(name), prefix+rand.Text())
	err = create(temp)
	if err == nil {
		err = u.root.Rename(temp, name)
	}
	_ = u.root.Remove(temp) // it is there after an error, or where both names were links to one file
	return err
}
