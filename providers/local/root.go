package local

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sandyard/providers/confine"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/script"
)

// Directories below the place where the root is built.
const (
	skeleton = "skeleton" // what every sandbox has, above the image
	lower    = "image"
	tree     = "tree" // both, which becomes the root
)

const hidden = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mounting is one mount in the sandbox; target is absolute there.
type mounting struct {
	source, target, kind string
	flags                int
	data                 string
}

// buildRoot gives the process a root of its own: the image with mount points laid over it. Both are lower layers of
// an overlay without an upper one, so nothing can ever be written. The mount points are directories of ours, so links
// in the image lead no mount astray.
func (s *start) buildRoot() {
	s.mount(mounting{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""})
	s.mount(mounting{"tmpfs", s.base, "tmpfs", hidden, "size=1m,nr_inodes=1k,mode=0755"})
	s.chdir(s.base) // the layers' names end at ':' and ',', which the host's may hold
	for _, dir := range []string{skeleton, lower, tree} {
		s.mkdir(dir)
	}
	mounts := s.mounts()
	s.makeSkeleton(mounts)
	s.mount(mounting{s.image.tree, lower, "", unix.MS_BIND, ""})
	s.mount(mounting{"overlay", tree, "overlay", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, "redirect_dir=nofollow,lowerdir=" + skeleton + ":" + lower})
	s.chdir(tree)
	for _, m := range mounts {
		if inside(m, mounts) {
			s.mkdir(below(m.target))
		}
		m.target = below(m.target)
		s.mount(m)
	}
	s.furnishDev()
	s.setKernel()
	s.setOOMFloor()
	s.maskHost()
	s.enter()
}

// below is the name of path from the new root, where the process stands.
func below(path string) string { return strings.TrimPrefix(path, "/") }

// inside says whether m's mount point lies within another of the mounts.
func inside(m mounting, mounts []mounting) bool {
	return slices.ContainsFunc(mounts, func(other mounting) bool { return strings.HasPrefix(m.target, other.target+"/") })
}

// mounts are in the order in which they are made.
func (s *start) mounts() []mounting {
	all := []mounting{
		{"proc", "/proc", "proc", hidden, ""},
		{"sysfs", "/sys", "sysfs", hidden | unix.MS_RDONLY, ""},
	}
	if !s.group.Unified {
		all = append(all, mounting{"tmpfs", cgroup.Root, "tmpfs", hidden, "size=64k,mode=0755"})
	}
	views := s.group.Views()
	for _, source := range slices.Sorted(maps.Keys(views)) {
		all = append(all, mounting{source, views[source], "", unix.MS_BIND | unix.MS_RDONLY | hidden, ""})
	}
	r := s.spec.Resources
	return append(
		all,
		mounting{"tmpfs", "/dev", "tmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "size=64k,mode=0755"},
		mounting{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
		mounting{"mqueue", "/dev/mqueue", "mqueue", hidden, ""},
		mounting{"shm", "/dev/shm", "tmpfs", hidden, fmt.Sprintf("size=%dm,mode=1777", confine.SharedMB(r))},
		mounting{"tmpfs", confine.TempDir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, fmt.Sprintf("size=%dm,nr_inodes=%d,mode=1777", confine.TempMB(r), confine.TempFiles)},
		mounting{
			"tmpfs", s.spec.WorkDir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV,
			fmt.Sprintf("size=%dm,nr_inodes=%d,uid=%d,gid=%d,mode=0755", r.DiskMB, confine.WorkDirFiles, confine.UserID, confine.UserID),
		},
		mounting{s.programs, confine.GuestDir, "", unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, ""},
	)
}

// makeSkeleton makes the mount points that are not inside another mount, and a file that the network needs.
func (s *start) makeSkeleton(mounts []mounting) {
	dirs := map[string]bool{}
	for _, m := range append(mounts, mounting{target: "/etc"}) {
		for dir := m.target; dir != "/" && !inside(m, mounts); dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) { // parents come first
		s.mkdir(skeleton + dir)
	}
	s.writeFile(skeleton+"/etc/hosts", confine.Hosts)
}

// furnishDev makes the few devices that programs expect, and then lets nobody make others.
func (s *start) furnishDev() {
	device := func(name string, major, minor uint32) {
		s.Do("create the device "+name, unix.SYS_MKNODAT, here, script.String("dev/"+name), script.Number(unix.S_IFCHR|0o666), script.Number(unix.Mkdev(major, minor)))
	}
	for minor, name := range map[uint32]string{3: "null", 5: "zero", 7: "full", 8: "random", 9: "urandom"} {
		device(name, 1, minor)
	}
	device("tty", 5, 0)
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		s.Do("create the link "+name, unix.SYS_SYMLINKAT, script.String(target), here, script.String("dev/"+name))
	}
	s.mount(mounting{"", "dev", "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC, ""})
}

// setKernel sets what the sandbox's namespaces have settings of their own for.
func (s *start) setKernel() {
	settings := confine.Sysctls()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		s.writeFile("proc/sys/"+strings.ReplaceAll(name, ".", "/"), settings[name])
	}
}

// maskHost takes away what /proc and /sys tell and let change of the whole machine, as engines do. Not every kernel has
// all of it.
func (s *start) maskHost() {
	for _, path := range []string{"proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"} {
		s.bindOnto(path, path, unix.MS_RDONLY|hidden)
	}
	for _, dir := range []string{"proc/acpi", "proc/asound", "proc/scsi", "sys/devices/virtual/powercap", "sys/firmware"} {
		s.call(mounting{"tmpfs", dir, "tmpfs", hidden | unix.MS_RDONLY, "size=4k,nr_inodes=2"}).MayLack()
	}
	for _, file := range []string{
		"proc/config.gz", "proc/interrupts", "proc/kcore", "proc/keys", "proc/kallsyms", "proc/latency_stats", "proc/sched_debug", "proc/timer_list", "proc/timer_stats",
	} {
		s.bindOnto("dev/null", file, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC)
	}
}

func (s *start) bindOnto(source, path string, flags int) {
	s.call(mounting{source, path, "", unix.MS_BIND, ""}).MayLack()
	s.call(mounting{"", path, "", unix.MS_REMOUNT | unix.MS_BIND | flags, ""}).OnlyIfDone()
}

// enter makes the directory where the process stands the root, and lets go of the host's.
func (s *start) enter() {
	dot := script.String(".")
	s.Do("pivot the root", unix.SYS_PIVOT_ROOT, dot, dot)
	s.Do("unmount the host's root", unix.SYS_UMOUNT2, dot, script.Number(unix.MNT_DETACH))
	s.chdir("/")
}

// mount makes a mount. A bind mount takes its flags in a second step.
func (s *start) mount(m mounting) {
	first := m
	if m.flags&unix.MS_BIND != 0 && m.flags&unix.MS_REMOUNT == 0 {
		first.flags = unix.MS_BIND
	}
	s.call(first)
	if first.flags != m.flags {
		s.call(mounting{"", m.target, "", unix.MS_REMOUNT | m.flags, ""})
	}
}

func (s *start) call(m mounting) *script.Step {
	return s.Do(
		"mount "+m.target, unix.SYS_MOUNT, script.String(m.source), script.String(m.target), script.String(m.kind), script.Number(m.flags), script.String(m.data),
	)
}
