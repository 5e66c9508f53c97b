package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
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
}

func entryAt(root *os.Root, p place) (Entry, error) { return newNames().entry(root, p) }

// names remembers who has which number, for the length of one call.
type names struct {
	users  map[uint32]string
	groups map[uint32]string
}

func newNames() *names { return &names{users: map[uint32]string{}, groups: map[uint32]string{}} }

func (n *names) entry(root *os.Root, p place) (Entry, error) {
	info, err := root.Lstat(p.rel)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{
		Name: filepath.Base(p.abs), Path: p.abs,
		Mode: info.Mode(), Size: info.Size(), ModifiedAt: info.ModTime(),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = n.user(st.Uid), n.group(st.Gid)
	}
	if info.Mode().Type() == fs.ModeSymlink {
		e.Target, err = root.Readlink(p.rel)
	}
	return e, err
}

func (n *names) user(id uint32) string {
	name, known := n.users[id]
	if !known {
		name = strconv.FormatUint(uint64(id), 10)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		n.users[id] = name
	}
	return name
}

func (n *names) group(id uint32) string {
	name, known := n.groups[id]
	if !known {
		name = strconv.FormatUint(uint64(id), 10)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		n.groups[id] = name
	}
	return name
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
