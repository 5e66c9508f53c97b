package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"sandyard/guest/supervisor"
)

const (
	// A supervisor that says nothing for this long while it should start a command was stopped from inside the sandbox.
	startPatience = 5 * time.Second
	// startStep is what a stop of everything, as by a pause, may take of that: time goes on meanwhile, the supervisor
	// does not.
	startStep = startPatience / 10
	// maxIdle supervisors stay ready. Each is three threads and half a megabyte.
	maxIdle = 3
	// A supervisor collects no garbage; after this many bytes of commands it is replaced.
	maxTaken   = 1 << 20
	takenByAny = 4 << 10
	// spareDelay is how long a command runs before a supervisor is started for the next one: most end sooner and give
	// theirs back, and their own start is in need of the processor.
	spareDelay = 20 * time.Millisecond
)

var (
	// ErrNoProcess says that the sandbox has no room for another process; nothing was started.
	ErrNoProcess = errors.New(
		"the sandbox cannot start another process: its limit of processes or memory is reached; " +
			"end some, or raise pids or memory_mb",
	)
	// ErrUnknownStart says that the supervisor died while it started the command.
	ErrUnknownStart = errors.New(
		"the command's supervisor was killed during the start; it is unknown whether the command ran",
	)

	errNotTaken = errors.New("the command's supervisor was killed before it received the command")
)

// supervisorProcess is one process that runs supervisor.Run.
type supervisorProcess struct {
	pid    int
	socket *os.File
	taken  int           // bytes of all its commands
	gone   chan struct{} // closed when the process was reaped
	// spared are orphans that there were before its command. Set while the supervisor takes no command.
	spared map[int]bool
}

// fork starts a supervisor that waits for its command.
func (h *Host) fork() (*supervisorProcess, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer null.Close()
	s := &supervisorProcess{socket: ours, gone: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.pid, err = syscall.ForkExec(h.command[0], h.command, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = ours.Close()
		return nil, startError(err)
	}
	h.sups[s.pid] = s
	return s, nil
}

func startError(err error) error {
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
		return ErrNoProcess
	}
	return fmt.Errorf("start the supervisor: %w", err)
}

// socketPair returns our end, which the runtime polls, and a plain blocking one for the child.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "guest"), nil
}

// take returns a supervisor without a command, started now if none was ready.
func (h *Host) take() (*supervisorProcess, error) {
	h.mu.Lock()
	var s *supervisorProcess
	if n := len(h.idle); n > 0 {
		s, h.idle = h.idle[n-1], h.idle[:n-1]
	}
	if len(h.idle) == 0 {
		h.wantIdle()
	}
	h.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return h.fork()
}

func (h *Host) wantIdle() {
	select {
	case h.refill <- struct{}{}:
	default:
	}
}

// refillLoop keeps one supervisor ready, which takes its start out of a command's latency.
func (h *Host) refillLoop() {
	for h.spare(); ; h.spare() {
		select {
		case <-h.stop:
			return
		case <-h.refill:
		}
		select {
		case <-h.stop:
			return
		case <-time.After(spareDelay):
		}
	}
}

// spare starts a supervisor where none is ready. Where it cannot, the next command starts its own and meets the error.
func (h *Host) spare() {
	h.mu.Lock()
	ready := len(h.idle) > 0
	h.mu.Unlock()
	if ready {
		return
	}
	if s, err := h.fork(); err == nil {
		h.keep(s)
	}
}

// keep makes a supervisor without a command ready for the next one, or lets it go.
func (h *Host) keep(s *supervisorProcess) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sups[s.pid] == s && !h.closing && len(h.idle) < maxIdle && s.taken < maxTaken {
		h.idle = append(h.idle, s)
		return
	}
	_ = s.socket.Close() // ends it
}

// send hands over the command and its descriptors. An error means that it was not started.
func (s *supervisorProcess) send(spec supervisor.Spec, stdio []*os.File) error {
	b := spec.Encode()
	s.taken += len(b) + takenByAny
	fds := make([]int, len(stdio))
	for i, f := range stdio {
		fds[i] = int(f.Fd())
	}
	rights := syscall.UnixRights(fds...)
	raw, err := s.socket.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	if err := raw.Write(func(fd uintptr) bool {
		sendErr = syscall.Sendmsg(int(fd), b[:supervisor.HeadSize], rights, nil, syscall.MSG_NOSIGNAL)
		return sendErr != syscall.EAGAIN
	}); err != nil {
		return err
	}
	if sendErr != nil {
		return os.NewSyscallError("sendmsg", sendErr)
	}
	_, err = s.socket.Write(b[supervisor.HeadSize:])
	return err
}

// startReport reads the report of a start.
func (s *supervisorProcess) startReport() (kind byte, value uint32, err error) {
	defer func() { _ = s.socket.SetReadDeadline(time.Time{}) }()
	for left := startPatience; left > 0; left -= startStep {
		_ = s.socket.SetReadDeadline(time.Now().Add(startStep))
		if kind, value, err = s.report(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return kind, value, err
		}
	}
	return kind, value, err
}

// report reads one report of the supervisor.
func (s *supervisorProcess) report() (kind byte, value uint32, err error) {
	var b [supervisor.ReportSize]byte
	if _, err := io.ReadFull(s.socket, b[:]); err != nil {
		return 0, 0, err
	}
	return b[0], supervisor.Uint32(b[1:]), nil
}
