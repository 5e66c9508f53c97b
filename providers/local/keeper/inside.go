package keeper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"sandyard/providers/confine"
)

func statusFile() *os.File { return os.NewFile(statusFD, "status") }

// inside runs as the first process of the new namespaces, still as root. It returns only when something is wrong.
func inside() error {
	runtime.LockOSThread() // some of what follows is per thread, and the thread that becomes the guest must have it
	unix.CloseOnExec(statusFD)
	plan, _, err := readPlan(os.NewFile(planFD, "plan"))
	if err != nil {
		return err
	}
	unix.CloseOnExec(planFD)
	// Not a part of our making: that would show the control groups of the keeper as the roots.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare the control groups: %w", err)
	}
	if err := buildRoot(plan); err != nil {
		return err
	}
	if err := errors.Join(unix.Sethostname([]byte(plan.Hostname)), raiseLoopback(), limitSelf()); err != nil {
		return err
	}
	if err := os.Chdir(plan.WorkDir); err != nil {
		return err
	}
	if err := dropRights(plan); err != nil {
		return err
	}
	err = unix.Exec(plan.Argv[0], plan.Argv, plan.Env)
	return fmt.Errorf("start the guest: %w", err)
}

func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// limitSelf sets what does not follow from the control groups.
func limitSelf() error {
	unix.Umask(0o022)
	for _, l := range []struct {
		what      int
		soft, max uint64
	}{{unix.RLIMIT_CORE, 0, 0}, {unix.RLIMIT_NOFILE, confine.OpenFiles, confine.MaxOpenFiles}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.soft, Max: l.max}); err != nil {
			return fmt.Errorf("limit resource %d: %w", l.what, err)
		}
	}
	return nil
}

// dropRights makes this thread an ordinary user's without any capability, now or ever, that dies with the keeper.
func dropRights(plan Plan) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // unknown to an older kernel
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := becomeUser(uintptr(plan.UID), uintptr(plan.GID)); err != nil {
		return fmt.Errorf("become the sandbox's user: %w", err)
	}
	header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	// Becoming another user has undone what the keeper asked for.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("die with the keeper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return installFilter(plan.Filter)
}

// becomeUser changes this thread alone: no other outlives the start of the guest, and Go's own calls would interrupt
// each of them, three times over.
func becomeUser(uid, gid uintptr) error {
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, gid, gid, gid},
		{unix.SYS_SETRESUID, uid, uid, uid},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return errno
		}
	}
	return nil
}

func installFilter(program []byte) error {
	if len(program) < unix.SizeofSockFilter {
		return errors.New("the filter of system calls is empty")
	}
	f := unix.SockFprog{
		Len:    uint16(len(program) / unix.SizeofSockFilter),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0])),
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f))); errno != 0 {
		return fmt.Errorf("install the filter of system calls: %w", errno)
	}
	return nil
}
