package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"sandyard/providers/confine"
	"sandyard/providers/local/cgroup"
)

// Directories below the place where the root is built.
const (
	skeleton = "skeleton" // what every sandbox has, above the image
	image    = "image"
	tree     = "tree" // both, which becomes the root
)

const hidden = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mounting is one mount in the sandbox; target is absolute there.
type mounting struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// buildRoot gives this process a root of its own: the image with mount points laid over it. Both are lower layers of
// an overlay without an upper one, so nothing can ever be written. The mount points are directories of ours, so links
// in the image lead no mount astray.
func buildRoot(plan Plan) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts: %w", err)
	}
	base := filepath.Join(plan.Dir, RootDir)
	if err := mount("", mounting{"tmpfs", base, "tmpfs", hidden, "size=1m,nr_inodes=1k,mode=0755"}); err != nil {
		return err
	}
	mounts := plan.mounts()
	if err := makeSkeleton(filepath.Join(base, skeleton), mounts); err != nil {
		return fmt.Errorf("make the mount points: %w", err)
	}
	for _, dir := range []string{image, tree} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			return err
		}
	}
	if err := mount("", mounting{plan.Image, filepath.Join(base, image), "", unix.MS_BIND, ""}); err != nil {
		return err
	}
	if err := os.Chdir(base); err != nil { // the layers' names end at ':' and ',', which the host's may hold
		return err
	}
	root := filepath.Join(base, tree)
	if err := mount("", mounting{"overlay", root, "overlay", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, "redirect_dir=nofollow,lowerdir=" + skeleton + ":" + image}); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := mount(root, m); err != nil {
			return err
		}
	}
	if err := furnishDev(root); err != nil {
		return fmt.Errorf("make the devices: %w", err)
	}
	if err := maskHost(root); err != nil {
		return err
	}
	return enter(root)
}

// mounts are in the order in which they are made.
func (p Plan) mounts() []mounting {
	all := []mounting{
		{"proc", "/proc", "proc", hidden, ""},
		{"sysfs", "/sys", "sysfs", hidden | unix.MS_RDONLY, ""},
	}
	if !p.Group.Unified {
		all = append(all, mounting{"tmpfs", cgroup.Root, "tmpfs", hidden, "size=64k,mode=0755"})
	}
	views := p.Group.Views()
	for _, source := range slices.Sorted(maps.Keys(views)) {
		all = append(all, mounting{source, views[source], "", unix.MS_BIND | unix.MS_RDONLY | hidden, ""})
	}
	return append(
		all,
		mounting{"tmpfs", "/dev", "tmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "size=64k,mode=0755"},
		mounting{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
		mounting{"mqueue", "/dev/mqueue", "mqueue", hidden, ""},
		mounting{"shm", "/dev/shm", "tmpfs", hidden, fmt.Sprintf("size=%dm,mode=1777", p.SharedMB)},
		mounting{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, fmt.Sprintf("size=%dm,nr_inodes=%d,mode=1777", p.TempMB, p.TempFiles)},
		mounting{
			"tmpfs", p.WorkDir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV,
			fmt.Sprintf("size=%dm,nr_inodes=%d,uid=%d,gid=%d,mode=0755", p.WorkDirMB, p.WorkDirFiles, p.UID, p.GID),
		},
		mounting{p.Programs, confine.GuestDir, "", unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, ""},
	)
}

// makeSkeleton makes the mount points that are not inside another mount, and a file that the network needs.
func makeSkeleton(dir string, mounts []mounting) error {
	for _, m := range mounts {
		if err := os.MkdirAll(filepath.Join(dir, m.target), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "etc/hosts"), []byte(confine.Hosts), 0o644)
}

// mount mounts m below root. A bind mount takes its flags in a second step.
func mount(root string, m mounting) error {
	target := filepath.Join(root, m.target)
	// Mount points within the file systems that were just mounted are made there.
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount point %s: %w", m.target, err)
	}
	first := m.flags
	if first&unix.MS_BIND != 0 {
		first = unix.MS_BIND
	}
	err := unix.Mount(m.source, target, m.kind, first, m.data)
	if err == nil && first != m.flags {
		err = unix.Mount("", target, "", unix.MS_REMOUNT|m.flags, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// furnishDev makes the few devices that programs expect, and then lets nobody make others.
func furnishDev(root string) error {
	dev := filepath.Join(root, "dev")
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		path := filepath.Join(dev, name)
		err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor)))
		if err = errors.Join(err, os.Chmod(path, 0o666)); err != nil {
			return err
		}
	}
	tty := filepath.Join(dev, "tty")
	if err := errors.Join(unix.Mknod(tty, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))), os.Chmod(tty, 0o666)); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, "")
}

// maskHost takes away what /proc and /sys tell and let change of the whole machine, as engines do.
func maskHost(root string) error {
	for _, path := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"} {
		if err := bindOnto(root, filepath.Join(root, path), path, unix.MS_RDONLY|hidden); err != nil {
			return err
		}
	}
	for _, path := range []string{
		"/proc/acpi", "/proc/asound", "/proc/config.gz", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	} {
		if err := cover(root, path); err != nil {
			return err
		}
	}
	return nil
}

// cover hides a file behind the null device and a directory behind an empty one.
func cover(root, path string) error {
	info, err := os.Stat(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return mount(root, mounting{"tmpfs", path, "tmpfs", hidden | unix.MS_RDONLY, "size=4k,nr_inodes=2"})
	}
	return bindOnto(root, filepath.Join(root, "dev/null"), path, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC)
}

func bindOnto(root, source, path string, flags uintptr) error {
	target := filepath.Join(root, path)
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return nil // this kernel has no such thing
	}
	err := unix.Mount(source, target, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// enter makes root the root and lets go of the host's.
func enter(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	return os.Chdir("/")
}
