package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bufferSize is that of a pipe.
	bufferSize = 64 << 10
	// elderPatience is how long the guest may be kept waiting by a worker that is not the newest.
	elderPatience = 100 * time.Millisecond
	// acceptRest is how long a relay rests that can let nobody in for now.
	acceptRest = 50 * time.Millisecond
)

// relay connects the guest with its workers the way an engine's attach does: what the guest writes goes to all of
// them, and what they write reaches it as it comes. The protocol between both ends sorts out who is talking. The
// newest worker alone may slow the guest down; without one the guest's words are lost.
type relay struct {
	stdin *os.File
	input sync.Mutex // held over one write to stdin

	mu      sync.Mutex
	workers []*os.File // newest last
}

func newRelay(stdin *os.File) *relay { return &relay{stdin: stdin} }

// accept lets workers in until the socket is closed.
func (r *relay) accept(socket *os.File) {
	for {
		worker, err := acceptOne(socket)
		if passes(err) {
			<-time.After(acceptRest)
			continue
		}
		if err != nil {
			return
		}
		r.join(worker)
		go r.listen(worker)
	}
}

// passes says that the machine or the process has too much open just now: the worker that waits is let in later.
func passes(err error) bool {
	for _, short := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

func acceptOne(socket *os.File) (*os.File, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var acceptErr error
	err = raw.Read(func(from uintptr) bool {
		for {
			fd, _, acceptErr = unix.Accept4(int(from), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if acceptErr != unix.EINTR && acceptErr != unix.ECONNABORTED {
				return acceptErr != unix.EAGAIN
			}
		}
	})
	if err = errors.Join(err, acceptErr); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "worker"), nil
}

func (r *relay) join(worker *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, elder := range r.workers {
		_ = elder.SetWriteDeadline(time.Now().Add(elderPatience)) // also for the write that waits now
	}
	r.workers = append(r.workers, worker)
}

func (r *relay) leave(worker *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.workers {
		if w == worker {
			r.workers = append(r.workers[:i:i], r.workers[i+1:]...)
		}
	}
	_ = worker.Close()
}

// listen passes on what a worker says until it goes.
func (r *relay) listen(worker *os.File) {
	defer r.leave(worker)
	buf := make([]byte, bufferSize)
	for {
		n, err := worker.Read(buf)
		if n > 0 && r.feed(buf[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) feed(p []byte) error {
	r.input.Lock()
	defer r.input.Unlock()
	_, err := r.stdin.Write(p)
	return err
}

// spread tells all workers what the guest says, until it ends.
func (r *relay) spread(stdout io.Reader) {
	buf := make([]byte, bufferSize)
	for {
		n, err := stdout.Read(buf)
		for _, worker := range r.audience() {
			if _, err := worker.Write(buf[:n]); err != nil {
				r.leave(worker)
			}
		}
		if err != nil {
			return
		}
	}
}

// audience is who hears the next words; all but the newest worker must take them at once.
func (r *relay) audience() []*os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.workers {
		deadline := time.Time{}
		if i < len(r.workers)-1 {
			deadline = time.Now().Add(elderPatience)
		}
		_ = w.SetWriteDeadline(deadline)
	}
	return append([]*os.File{}, r.workers...)
}
