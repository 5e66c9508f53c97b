package supervisor

import "syscall"

const (
	prSetDumpable       = 4
	prSetChildSubreaper = 36
)

// The command and its children are the kernel's first choice when memory runs out, then supervisors, and the guest is
// its last, with 0. Where the guest was given a floor (900), commands can make themselves supervisors' equals, but not
// its.
const ownOOMScore, childOOMScore = "900", "950"

// openFiles and maxOpenFiles are the limits of commands, below the guest's own; package confine says why.
const openFiles, maxOpenFiles = 1024, 4096

// Run is the whole supervisor: it takes one command after the other from SocketFD, each when everything that the one
// before left behind is gone, and returns when the guest closes the socket.
func Run() {
	oom := openOOMScore() // before the next line makes /proc/self unwritable
	setOOMScore(oom, ownOOMScore)
	prctl(prSetDumpable, 0)
	defaultRealTime()
	adopts := prctl(prSetChildSubreaper, 1)
	syscall.CloseOnExec(SocketFD)
	// Where the limit is lower already, it stays.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: openFiles, Max: maxOpenFiles})
	for {
		spec, files, ok := receive()
		if !ok {
			return
		}
		supervise(spec, files, oom, adopts)
	}
}

func supervise(spec Spec, files []uintptr, oom int, adopts bool) {
	pid, err := start(spec, files, oom)
	for _, fd := range files {
		_ = syscall.Close(int(fd)) // else the command's pipes would stay open for as long as we live
	}
	if err != nil {
		report(Failed, uint32(errno(err)))
		return
	}
	kind := Started
	if !adopts {
		kind = StartedAlone
	}
	report(kind, uint32(pid))
	reap(pid)
	report(Free, 0)
}

func prctl(option, value uintptr) bool {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, option, value, 0)
	return errno == 0
}

func openOOMScore() int {
	fd, err := syscall.Open("/proc/self/oom_score_adj", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// receive reads the head with its descriptors, then the body.
func receive() (Spec, []uintptr, bool) {
	head := make([]byte, HeadSize)
	control := make([]byte, syscall.CmsgSpace(4*4))
	n, cn, _, _, err := syscall.Recvmsg(SocketFD, head, control, syscall.MSG_CMSG_CLOEXEC|syscall.MSG_WAITALL)
	if err != nil || n != HeadSize {
		return Spec{}, nil, false
	}
	files := descriptors(control[:cn])
	body := make([]byte, Uint32(head))
	if len(files) < 3 || !readFull(body) {
		return Spec{}, nil, false
	}
	return decode(body), files, true
}

func descriptors(control []byte) []uintptr {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	files := make([]uintptr, 0, len(fds))
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	return files
}

func readFull(b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Read(SocketFD, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

func start(spec Spec, files []uintptr, oom int) (int, error) {
	setOOMScore(oom, childOOMScore) // which the child inherits
	pid, err := syscall.ForkExec(spec.Path, spec.Argv, &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: spec.TTY},
	})
	setOOMScore(oom, ownOOMScore)
	return pid, err
}

func setOOMScore(fd int, score string) { _, _ = syscall.Pwrite(fd, []byte(score), 0) }

// reap waits for the command and, after it, for everything that was left to us.
func reap(command int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.ECHILD {
			return
		}
		if err == nil && pid == command {
			report(Exited, uint32(status))
		}
	}
}

func report(kind byte, value uint32) {
	b := appendUint32([]byte{kind}, value)
	_, _ = syscall.Write(SocketFD, b) // a guest that is gone takes us along
}

func errno(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok { //nolint:errorlint // ForkExec answers with a bare Errno; errors is not imported
		return e
	}
	return syscall.EIO
}
