package files

import (
	"errors"
	"io"
	"io/fs"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"sandyard/guest/saferoot"
)

// Entry describes one path.
type Entry struct {
	Name       string
	Path       string
	Mode       fs.FileMode
	Size       int64
	Owner      string
	Group      string
	ModifiedAt time.Time
	Target     string // of a symbolic link
	Metadata   map[string]string
}

func entryAt(root *saferoot.Root, p place) (Entry, error) { return newDescriber().entry(root, p) }

// describer describes entries, for the length of one call: it remembers who has which number.
type describer struct {
	users  map[uint32]string
	groups map[uint32]string
	room   int // for metadata, in bytes
}

func newDescriber() *describer {
	return &describer{users: map[uint32]string{}, groups: map[uint32]string{}, room: maxListed}
}

func (d *describer) entry(root *saferoot.Root, p place) (Entry, error) {
	info, err := root.Lstat(p.rel)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{
		Name: filepath.Base(p.abs), Path: p.abs,
		Mode: info.Mode(), Size: info.Size(), ModifiedAt: info.ModTime(),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = d.user(st.Uid), d.group(st.Gid)
	}
	e.Metadata = d.metadata(root, p.rel, info.Mode())
	if info.Mode().Type() == fs.ModeSymlink {
		e.Target, err = root.Readlink(p.rel)
	}
	return e, err
}

func (d *describer) user(id uint32) string {
	name, known := d.users[id]
	if !known {
		name = strconv.FormatUint(uint64(id), 10)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		d.users[id] = name
	}
	return name
}

func (d *describer) group(id uint32) string {
	name, known := d.groups[id]
	if !known {
		name = strconv.FormatUint(uint64(id), 10)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		d.groups[id] = name
	}
	return name
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
