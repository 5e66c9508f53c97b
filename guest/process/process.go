package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"sandyard/guest/supervisor"
)

// Spec is the command to start; every field is set.
type Spec = supervisor.Spec

// Process is one started command.
type Process struct {
	// Pid is the command's process id, and the id of its session and process group.
	Pid int

	host   *Host
	sup    *supervisorProcess
	spared map[int]bool
	ended  chan struct{}
	status syscall.WaitStatus
	clear  chan struct{}
	killed bool // guarded by host.mu; its supervisor is not used again
}

// killedStatus is the wait status of a command whose supervisor could not report it.
const killedStatus = syscall.WaitStatus(syscall.SIGKILL)

// Start runs a command with these descriptors, three or four from 0 on, which the caller still owns. ErrNoProcess and
// an errno (of the program or its directory) mean that nothing has run.
func (h *Host) Start(spec Spec, stdio []*os.File) (*Process, error) {
	s, err := h.take()
	if err != nil {
		return nil, err
	}
	spared := h.straysNow()
	p, err := h.hand(s, spared, spec, stdio)
	if !errors.Is(err, errNotTaken) {
		return p, err
	}
	// One that waited idle may have been killed; a fresh one has not had the time.
	if s, err = h.fork(); err != nil {
		return nil, err
	}
	return h.hand(s, spared, spec, stdio)
}

// hand gives the command to the supervisor and waits for the report of the start.
func (h *Host) hand(s *supervisorProcess, spared map[int]bool, spec Spec, stdio []*os.File) (*Process, error) {
	s.spared = spared
	if err := s.send(spec, stdio); err != nil {
		return nil, errors.Join(errNotTaken, err, s.socket.Close())
	}
	kind, value, err := s.startReport()
	switch {
	case errors.Is(err, syscall.ECONNRESET): // it died before it had read all
		return nil, errors.Join(errNotTaken, s.socket.Close())
	case err != nil:
		_ = s.socket.Close()
		h.destroy(s, s.gone)
		return nil, ErrUnknownStart
	case kind == supervisor.Failed:
		h.keep(s)
		return nil, syscall.Errno(value)
	}
	if kind == supervisor.StartedAlone {
		h.expectOrphans()
	}
	p := &Process{
		Pid:    int(value),
		host:   h,
		sup:    s,
		spared: s.spared,
		ended:  make(chan struct{}),
		clear:  make(chan struct{}),
	}
	h.loops.Go(p.follow)
	return p, nil
}

// follow waits until nothing of the command is left. Without a report of its end the supervisor was killed, and the
// command, orphaned, must go too.
func (p *Process) follow() {
	defer close(p.clear)
	kind, value, err := p.sup.report()
	if err != nil || kind != supervisor.Exited {
		_ = p.sup.socket.Close()
		p.status = killedStatus
		p.host.destroy(p.sup, p.sup.gone)
		close(p.ended)
		return
	}
	p.status = syscall.WaitStatus(value)
	close(p.ended)
	if kind, _, err := p.sup.report(); err == nil && kind == supervisor.Free && p.unused() {
		p.host.keep(p.sup)
	} else {
		_ = p.sup.socket.Close()
	}
}

// unused says that no Kill of this command still looks at its supervisor, and from now on none will.
func (p *Process) unused() bool {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	free := !p.killed
	p.killed = true
	return free
}

// Ended is closed when the command itself has ended; what it started in the background may go on.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Status is how the command ended; it may be asked once Ended is closed.
func (p *Process) Status() syscall.WaitStatus { return p.status }

// Supervisor is the process id of the command's supervisor, as Processes has it.
func (p *Process) Supervisor() int { return p.sup.pid }

// Signal sends a signal to the command's process group.
func (p *Process) Signal(s syscall.Signal) error {
	select {
	case <-p.ended:
		return syscall.ESRCH
	default:
		return syscall.Kill(-p.Pid, s)
	}
}

// Kill asks the process group to end, waits up to grace for the command to do so, and then kills everything the command
// ever started. Nothing of it is left when Kill returns.
func (p *Process) Kill(grace time.Duration) {
	if grace > 0 && p.Signal(syscall.SIGTERM) == nil {
		_ = p.Signal(syscall.SIGCONT) // a stopped process would not see it
		select {
		case <-p.ended:
		case <-time.After(grace):
		}
	}
	if p.unused() {
		p.host.destroy(p.sup, p.clear)
	}
	<-p.clear
	p.host.destroyStrays(p.spared)
}
