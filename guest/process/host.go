// Package process runs commands as the first process of a sandbox must: every command under a supervisor of its own,
// every dead process reaped, and nothing left of a command that was killed.
//
// All processes below the guest are supervisors or belong to one. A child of the guest that is not a supervisor is a
// stray: its supervisor was killed from inside the sandbox. Strays are killed with the next command that is.
package process

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host owns the processes of the sandbox. There is one in a guest, because it waits for every child of the process.
type Host struct {
	command []string // of a supervisor
	log     *slog.Logger
	init    bool // we are process 1, so kill(-1) reaches the sandbox and nothing else

	mu      sync.Mutex // held over fork, so that no child is reaped before it is known
	sups    map[int]*supervisorProcess
	idle    []*supervisorProcess // ready for a command
	closing bool
	orphans bool // fall to us instead of their supervisors

	unshield func()
	limits   limits // of the process when it was taken over

	refill chan struct{}
	stop   chan struct{}
	loops  sync.WaitGroup
}

// NewHost takes the process over: it becomes unreadable to other processes of the same user and deaf to their signals,
// adopts and reaps orphans, and starts the threads it will need, since it could not in a sandbox that is full of
// processes. command is the command line of a program that calls supervisor.Run.
func NewHost(command []string, log *slog.Logger) (*Host, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	// Process 1 adopts orphans without being asked, and gVisor takes the question for a mistake.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && os.Getpid() != 1 {
		return nil, os.NewSyscallError("prctl", err)
	}
	unshield, err := shield()
	if err != nil {
		return nil, err
	}
	startThreads(spareThreads)
	h := &Host{
		command: command, log: log, init: os.Getpid() == 1,
		unshield: unshield, limits: limitsNow(), sups: map[int]*supervisorProcess{},
		refill: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	h.loops.Go(h.reapLoop)
	h.loops.Go(h.refillLoop)
	return h, nil
}

// Close kills every command with all it started, and returns when they are gone.
func (h *Host) Close() {
	for _, s := range h.closeIdle() {
		h.destroy(s, s.gone)
	}
	close(h.stop)
	h.loops.Wait()
	h.unshield()
}

// closeIdle lets the idle supervisors go, now and from now on, and returns all.
func (h *Host) closeIdle() []*supervisorProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
	for _, s := range h.idle {
		_ = s.socket.Close() // ends it
	}
	return slices.Collect(maps.Values(h.sups))
}

// reapLoop waits for every child, known or not.
func (h *Host) reapLoop() {
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, syscall.SIGCHLD)
	defer signal.Stop(dead)
	for {
		for h.reapOne() {
		}
		select {
		case <-dead:
		case <-h.stop:
			return
		}
	}
}

func (h *Host) reapOne() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return errors.Is(err, syscall.EINTR)
	}
	if s := h.sups[pid]; s != nil {
		delete(h.sups, pid)
		close(s.gone)
		h.idle = slices.DeleteFunc(h.idle, func(other *supervisorProcess) bool { return other == s })
	}
	return true
}
