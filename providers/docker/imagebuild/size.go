package imagebuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

const (
	// leastFile is what every file counts as, however small: the engine's disk has so many of them and no more.
	leastFile = 4 << 10
	// deepest is how many directories a build may nest. What is deeper costs more to look at than to make.
	deepest = 128
	// measuring bounds one look at what a build has written.
	measuring = 5 * time.Second
)

// layer is what a build's container has written, as the engine and this machine's kernel tell.
type layer struct {
	api   *client.Client
	ref   string
	upper string // directory of what it has changed; empty = not to be seen from here
}

func (b *Builder) layerOf(ctx context.Context, ref string) layer {
	l := layer{api: b.cfg.API, ref: ref}
	found, err := b.cfg.API.ContainerInspect(ctx, ref)
	if err != nil || !strings.HasPrefix(b.cfg.API.DaemonHost(), "unix://") {
		return l
	}
	if dir := found.GraphDriver.Data["UpperDir"]; isDir(dir) {
		l.upper = dir
	}
	return l
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// processesOf lists the processes of this machine whose control group is named after a container.
func processesOf(ref string) (pids []string) {
	all, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer all.Close()
	names, _ := all.Readdirnames(-1)
	for _, pid := range names {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		if group, err := os.ReadFile("/proc/" + pid + "/cgroup"); err == nil && bytes.Contains(group, []byte(ref)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// written is how many bytes of the engine's disk the container takes: those of its files, and of files without a name
// that its processes still have open. It need not count on beyond limit. Where neither can be seen from here, the
// engine is asked, which counts files alone.
func (l layer) written(ctx context.Context, limit int64) (int64, error) {
	if l.upper == "" {
		found, _, err := l.api.ContainerInspectWithRaw(ctx, l.ref, true)
		if err != nil || found.SizeRw == nil {
			return 0, err
		}
		return *found.SizeRw, nil
	}
	c := count{limit: limit, until: time.Now().Add(measuring), seen: map[inode]bool{}}
	if err := c.tree(unix.AT_FDCWD, l.upper, 0); err != nil {
		return c.bytes, err
	}
	c.open(l.ref)
	return c.bytes, nil
}

type inode struct{ dev, ino uint64 }

// count adds up what files take.
type count struct {
	bytes int64
	limit int64
	until time.Time
	seen  map[inode]bool // of files with several names or none
}

func (c *count) done() bool { return c.bytes > c.limit || time.Now().After(c.until) }

var errTooDeep = errors.New("the build's directories are nested too deeply")

// tree counts a directory and what is below it. The build changes it meanwhile and may mean harm: no link is followed,
// and what is gone by now counts nothing.
func (c *count) tree(at int, name string, depth int) error {
	if depth > deepest {
		return errTooDeep
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // gone, or a directory no more
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for !c.done() {
		names, err := dir.Readdirnames(1024)
		if len(names) == 0 || err != nil {
			return nil //nolint:nilerr // its end
		}
		for _, child := range names {
			if err := c.entry(fd, child, depth); err != nil || c.done() {
				return err
			}
		}
	}
	return nil
}

func (c *count) entry(dir int, name string, depth int) error {
	var s unix.Stat_t
	if unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	c.add(s)
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.tree(dir, name, depth+1)
	}
	return nil
}

func (c *count) add(s unix.Stat_t) {
	if s.Mode&unix.S_IFMT != unix.S_IFDIR && s.Nlink != 1 {
		id := inode{s.Dev, s.Ino}
		if c.seen[id] {
			return
		}
		c.seen[id] = true
	}
	c.bytes += max(s.Blocks*512, leastFile)
}

// overlayMagic is the type of the file systems that containers write to; files in memory are limited otherwise.
const overlayMagic = 0x794c7630

// open counts files without a name that the container's processes have open or mapped.
func (c *count) open(ref string) {
	for _, pid := range processesOf(ref) {
		c.openBy("/proc/" + pid + "/fd")
		c.openBy("/proc/" + pid + "/map_files")
	}
}

func (c *count) openBy(fds string) {
	dir, err := os.Open(fds)
	if err != nil {
		return
	}
	defer dir.Close()
	for !c.done() {
		names, err := dir.Readdirnames(1024)
		if len(names) == 0 || err != nil {
			return
		}
		for _, name := range names {
			var s unix.Stat_t
			path := fds + "/" + name
			if unix.Stat(path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFREG || s.Nlink != 0 {
				continue
			}
			var fs unix.Statfs_t
			if unix.Statfs(path, &fs) == nil && fs.Type == overlayMagic {
				c.add(s)
			}
		}
	}
}
