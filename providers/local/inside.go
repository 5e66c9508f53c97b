package local

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/script"
	"sandyard/providers/local/shim"
)

// start is what a sandbox starts from, and what its first process is going to do: it begins as root in new namespaces,
// builds the sandbox's view of the system around itself, gives up all rights and becomes the guest.
type start struct {
	script.Script
	spec     providers.Spec
	image    image
	programs string // directory with the guest
	base     string // directory where the root is built, seen by nobody else
	group    cgroup.Group
	filter   []byte // the system calls that it may make, as an array of struct sock_filter
}

// here makes calls that take a directory's descriptor look from where the process stands.
var here = script.Number(unix.AT_FDCWD) //nolint:gochecknoglobals // a constant

func (s *start) write() {
	s.umask(0) // modes are meant as they are written
	// Not a part of our making: that would show the control groups of the shim as the roots.
	s.Do("unshare the cgroup namespace", unix.SYS_UNSHARE, script.Number(unix.CLONE_NEWCGROUP))
	s.buildRoot()
	s.Do("set the host name", unix.SYS_SETHOSTNAME, script.String(s.spec.ID), script.Number(len(s.spec.ID)))
	s.raiseLoopback()
	s.limit()
	s.chdir(s.spec.WorkDir)
	s.dropRights()
	argv := []string{
		confine.GuestDir + "/" + shim.GuestProgram, "stdio",
		"-workdir", s.spec.WorkDir, "-roots", s.spec.WorkDir + "," + confine.TempDir, "-users", confine.UserName,
	}
	s.Do("start the guest", unix.SYS_EXECVE, script.String(argv[0]), script.Strings(argv), script.Strings(environ(s.spec, s.image.env)))
}

func (s *start) raiseLoopback() {
	const what = "bring up the loopback interface"
	s.Do(what, unix.SYS_SOCKET, script.Number(unix.AF_INET), script.Number(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), script.Number(0)).Keep()
	request := make([]byte, 40) // struct ifreq: a name of 16 bytes, then the flags
	copy(request, "lo")
	binary.NativeEndian.PutUint16(request[unix.IFNAMSIZ:], unix.IFF_UP)
	s.Do(what, unix.SYS_IOCTL, script.Kept(), script.Number(unix.SIOCSIFFLAGS), script.Bytes(request))
}

// limit sets what does not follow from the control groups.
func (s *start) limit() {
	s.umask(0o022)
	for _, l := range []struct {
		what      int
		soft, max uint64
	}{{unix.RLIMIT_CORE, 0, 0}, {unix.RLIMIT_NOFILE, confine.OpenFiles, confine.GuestOpenFiles}} {
		pair := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, l.soft), l.max)
		s.Do(fmt.Sprintf("set resource limit %d", l.what), unix.SYS_PRLIMIT64, script.Number(0), script.Number(l.what), script.Bytes(pair), script.Number(0))
	}
}

// dropRights makes the process an ordinary user's without any capability, now or ever, that dies with the shim.
func (s *start) dropRights() {
	for c := range unix.CAP_LAST_CAP + 1 {
		s.Do("drop a capability from the bounding set", unix.SYS_PRCTL, script.Number(unix.PR_CAPBSET_DROP), script.Number(c)).MayBeUnknown()
	}
	id := script.Number(confine.UserID)
	const become = "switch to the sandbox's user"
	s.Do(become, unix.SYS_SETGROUPS, script.Number(0), script.Number(0))
	s.Do(become, unix.SYS_SETRESGID, id, id, id)
	s.Do(become, unix.SYS_SETRESUID, id, id, id)
	header := binary.NativeEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	s.Do("clear the capability sets", unix.SYS_CAPSET, script.Bytes(append(header, 0, 0, 0, 0)), script.Bytes(make([]byte, 24)))
	// Becoming another user has undone what the process began with.
	s.Do("set the parent death signal", unix.SYS_PRCTL, script.Number(unix.PR_SET_PDEATHSIG), script.Number(unix.SIGKILL))
	s.Do("set no_new_privs", unix.SYS_PRCTL, script.Number(unix.PR_SET_NO_NEW_PRIVS), script.Number(1), script.Number(0), script.Number(0), script.Number(0))
	s.Do("install the seccomp filter", unix.SYS_SECCOMP, script.Number(unix.SECCOMP_SET_MODE_FILTER), script.Number(0), script.Filter(s.filter))
}

func (s *start) chdir(dir string) {
	s.Do("change directory to "+dir, unix.SYS_CHDIR, script.String(dir))
}

func (s *start) umask(mask int) { s.Do("set the umask", unix.SYS_UMASK, script.Number(mask)) }

func (s *start) mkdir(dir string) {
	s.Do("create the directory "+dir, unix.SYS_MKDIRAT, here, script.String(dir), script.Number(0o755)).MayExist()
}

func (s *start) writeFile(name, text string) {
	what := "write the file " + name
	s.Do(what, unix.SYS_OPENAT, here, script.String(name), script.Number(unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC), script.Number(0o644)).Keep()
	s.Do(what, unix.SYS_WRITE, script.Kept(), script.String(text), script.Number(len(text)))
	s.Do(what, unix.SYS_CLOSE, script.Kept())
}
