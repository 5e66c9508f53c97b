package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where says in which namespaces and group a process begins.
type Where struct {
	Namespaces uintptr // flags of clone for those that are new
	Group      int     // descriptor of a control group of version 2; negative = the caller's
}

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// Process is one that Start has made.
type Process struct {
	*os.Process
	calls  *Calls
	status *os.File // closed by becoming another program; before that comes what went wrong
}

// Start makes a process that leads a session of its own, has std, which are higher ones, as its standard descriptors,
// dies with the calling thread and does the calls. It does not wait for them. The caller has locked its goroutine to its
// thread.
func (c *Calls) Start(std [3]int, where Where) (*Process, error) {
	status, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	args := cloneArgs{flags: uint64(where.Namespaces), exitSignal: uint64(unix.SIGCHLD)}
	if where.Group >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(where.Group)
	}
	pid, err := run(&args, append(begin(std), c.calls...), theirs.Fd())
	runtime.KeepAlive(c)
	if err != nil {
		return nil, errors.Join(err, status.Close())
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, errors.Join(err, status.Close())
	}
	return &Process{Process: p, calls: c, status: status}, nil
}

// begin is what every process does first.
func begin(std [3]int) []call {
	first := []call{
		{number: unix.SYS_PRCTL, args: [maxArgs]uintptr{unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)}},
		{number: unix.SYS_SETSID},
	}
	for fd, from := range std {
		first = append(first, call{number: unix.SYS_DUP3, args: [maxArgs]uintptr{uintptr(from), uintptr(fd)}})
	}
	return first
}

// run clones. No signal may come to the process before it is another program: its handlers are ours, and need our threads.
func run(args *cloneArgs, calls []call, status uintptr) (int, error) {
	all, before := ^uint64(0), uint64(0)
	maskSignals(&all, &before)
	pid, errno := clone(args, calls, status, &before)
	maskSignals(&before, nil)
	if errno != 0 {
		return 0, fmt.Errorf("create the process: %w", errno)
	}
	return int(pid), nil
}

//go:nosplit
//go:norace
func maskSignals(to, before *uint64) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(before)), 8, 0, 0)
}

// clone returns in the parent alone. The child is a copy of one of our threads without the others, so it does nothing
// that may grow its stack, allocate or wait for another goroutine.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func clone(args *cloneArgs, calls []call, status uintptr, mask *uint64) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	var result uintptr
	done := true
	for i := range calls {
		c := &calls[i]
		if c.flags&onlyIfDone != 0 && !done {
			continue
		}
		if i == len(calls)-1 {
			maskSignals(mask, nil)
		}
		a := c.args
		for k := range a {
			if c.kept&(1<<k) != 0 {
				a[k] = result
			}
		}
		r, _, errno := syscall.RawSyscall6(c.number, a[0], a[1], a[2], a[3], a[4], a[5])
		done = errno == 0
		if !done && !c.allows(errno) {
			trouble := [2]uint32{uint32(i), uint32(errno)}
			_, _, _ = syscall.RawSyscall6(unix.SYS_WRITE, status, uintptr(unsafe.Pointer(&trouble)), unsafe.Sizeof(trouble), 0, 0, 0)
			break
		}
		if c.flags&keep != 0 {
			result = r
		}
	}
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
	}
}

//go:nosplit
//go:norace
func (c *call) allows(errno syscall.Errno) bool {
	switch errno {
	case unix.ENOENT:
		return c.flags&mayLack != 0
	case unix.EEXIST:
		return c.flags&mayExist != 0
	case unix.EINVAL:
		return c.flags&mayBeUnknown != 0
	default:
		return false
	}
}

// Become waits until the process has done its calls and become another program, or says why it has not.
func (p *Process) Become() error {
	defer p.status.Close()
	trouble, err := io.ReadAll(p.status)
	if err != nil || len(trouble) == 0 {
		return err
	}
	if len(trouble) != 8 {
		return errTorn
	}
	step := int(binary.NativeEndian.Uint32(trouble)) - len(begin([3]int{}))
	errno := syscall.Errno(binary.NativeEndian.Uint32(trouble[4:]))
	if step < 0 || step >= len(p.calls.whats) {
		return fmt.Errorf("start the process: %w", errno)
	}
	return fmt.Errorf("%s: %w", p.calls.whats[step], errno)
}
