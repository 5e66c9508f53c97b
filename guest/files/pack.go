package files

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

// packBatch is how many entries of a directory are held at one time.
const packBatch = 256

// Pack writes what is below a directory as a tar archive: directories, regular files, and symbolic links as they are,
// never followed. What is neither is left out, and so is what is removed meanwhile. Owners are not told.
func (t *Tree) Pack(path string, to io.Writer) error {
	_, err := inRoot(t, path, true, func(root *saferoot.Root, p place) (struct{}, error) {
		dir, err := root.OpenRoot(p.rel)
		if err != nil {
			return struct{}{}, err
		}
		defer dir.Close()
		k := packer{root: dir, out: tar.NewWriter(to), waiting: []string{"."}}
		if err := k.all(); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, k.out.Close()
	})
	return err
}

type packer struct {
	root    *saferoot.Root
	out     *tar.Writer
	waiting []string // directories that were told but not looked into
}

func (k *packer) all() error {
	for len(k.waiting) > 0 {
		dir := k.waiting[len(k.waiting)-1]
		k.waiting = k.waiting[:len(k.waiting)-1]
		if err := k.directory(dir); err != nil {
			return pathError(err, dir)
		}
	}
	return nil
}

// directory holds no more than one directory open: how deep they are nested is the sandbox's choice.
func (k *packer) directory(dir string) error {
	f, err := k.root.OpenDir(dir)
	if gone(err) && dir != "." {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		children, err := f.ReadDir(packBatch)
		for _, c := range children {
			name := filepath.Join(dir, c.Name())
			if err := k.entry(name, c.Type()); err != nil {
				return pathError(err, name)
			}
		}
		if isEOF(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (k *packer) entry(name string, kind fs.FileMode) (err error) {
	if len(name) > maxPath {
		return protocol.Errorf(protocol.ReasonTooLarge, "'%.80s…' is nested too deeply for an archive", name)
	}
	switch {
	case temporary(name):
		return nil
	case kind.IsDir():
		err = k.told(name)
	case kind.IsRegular():
		err = k.file(name)
	case kind == fs.ModeSymlink:
		err = k.link(name)
	}
	if gone(err) {
		return nil
	}
	return err
}

// temporary says whether a file is one that the guest is just writing.
func temporary(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, protocol.TempNew) || strings.HasPrefix(base, protocol.TempReplace)
}

// gone says that an entry was removed, or became something else, since its directory was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR)
}

func (k *packer) told(name string) error {
	info, err := k.root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	if err := k.header(name+"/", info, ""); err != nil {
		return err
	}
	k.waiting = append(k.waiting, name)
	return nil
}

func (k *packer) file(name string) error {
	f, err := k.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if err := k.header(name, info, ""); err != nil {
		return err
	}
	n, err := io.CopyN(k.out, f, info.Size())
	if isEOF(err) {
		return protocol.Errorf(
			protocol.ReasonBusy,
			"'%s' shrank from %d to %d bytes while it was read; try again",
			name,
			info.Size(),
			n,
		)
	}
	return err
}

func (k *packer) link(name string) error {
	info, err := k.root.Lstat(name)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return err
	}
	target, err := k.root.Readlink(name)
	if err != nil {
		return err
	}
	return k.header(name, info, target)
}

func (k *packer) header(name string, info fs.FileInfo, target string) error {
	h, err := tar.FileInfoHeader(bare{info}, target)
	if err != nil {
		return err
	}
	h.Name, h.ModTime = name, info.ModTime().Truncate(time.Second)
	return k.out.WriteHeader(h)
}

// bare hides the owner, which means nothing elsewhere.
type bare struct{ fs.FileInfo }

// Sys implements fs.FileInfo.
func (bare) Sys() any { return nil }
