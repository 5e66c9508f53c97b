package execs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// A background process may hold the command's output open; after the command's own end it is heard this long.
	outputGrace = 200 * time.Millisecond
	readSize    = 32 << 10
	maxRest     = 1 << 20 // more than a pipe holds
	idleSize    = 1 << 10 // for output that is read only to be thrown away
)

// collect reads the output until the command has ended and its output too, or the grace is over.
func (e *Exec) collect(files *pipes) {
	var pumps sync.WaitGroup
	for i, f := range files.out {
		if f != nil {
			pumps.Go(func() { e.pump(Stream(i), f) })
		}
	}
	heard := make(chan struct{})
	go func() {
		pumps.Wait()
		close(heard)
	}()
	<-e.proc.Ended()
	select {
	case <-heard:
	case <-time.After(outputGrace):
	}
	stopReading(files)
	e.hasten(heard)
	<-heard
	e.stdin.abandon()
}

// hasten lets the output of a plain command that has ended be read without its listeners, who get it as they come to
// it. That is kept of few commands at one time; of the others, and of a terminal that holds more than is kept (gVisor's
// hold whatever is written to them), the rest waits for the listeners until the command is killed.
func (e *Exec) hasten(heard <-chan struct{}) {
	if e.audience == nil {
		return
	}
	places := e.latecomers
	if e.held() > maxRest {
		places = nil
	}
	select {
	case <-heard:
	case places <- struct{}{}:
		e.audience.hasten(maxLate, e.comeLast)
	case <-e.slain:
		select {
		case e.latecomers <- struct{}{}:
			e.audience.hasten(maxLate, e.comeLast)
		default:
			e.audience.hasten(0, nil)
		}
	}
}

// comeLast gives the command's place among the latecomers back.
func (e *Exec) comeLast() { <-e.latecomers }

// stopReading makes every read of the output fail from now on.
func stopReading(files *pipes) {
	for _, f := range files.out {
		_ = f.SetReadDeadline(time.Now()) // a nil file only answers with an error
	}
}

// takeIn reads what the command has written by now.
func (e *Exec) takeIn() {
	for i, f := range e.outputs {
		if f == nil {
			continue
		}
		raw, err := f.SyscallConn()
		if err != nil {
			continue
		}
		buf := make([]byte, readSize)
		_ = raw.Control(func(fd uintptr) { // of a closed file there is no more to read
			e.takeWhole(Stream(i), int(fd), buf)
		})
	}
}

// takeWhole reads what the pipe holds.
func (e *Exec) takeWhole(stream Stream, fd int, buf []byte) {
	for left := maxRest; left > 0; {
		n, err := e.take(stream, fd, buf)
		if n <= 0 || err != nil {
			break
		}
		left -= n
	}
}

// take makes one read, which is counted before anybody can make another.
func (e *Exec) take(stream Stream, fd int, buf []byte) (int, error) {
	e.taking[stream].Lock()
	defer e.taking[stream].Unlock()
	n, err := syscall.Read(fd, buf)
	if n > 0 {
		e.add(stream, buf[:n])
	}
	return n, err
}

// next waits for the next bytes and takes them; nothing is io.EOF.
func (e *Exec) next(stream Stream, f *os.File, buf []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, readErr = e.take(stream, int(fd), buf)
		return !errors.Is(readErr, syscall.EAGAIN)
	})
	switch {
	case err != nil:
		return err
	case n > 0 || errors.Is(readErr, syscall.EINTR):
		return nil
	case readErr != nil:
		return readErr
	}
	return io.EOF
}

// pump reads one stream to its end, or until stopReading. What background processes write to a pipe after that is read
// and dropped: closing it instead would kill them with SIGPIPE. A terminal is taken from them.
func (e *Exec) pump(stream Stream, f *os.File) {
	buf := make([]byte, readSize)
	for {
		err := e.next(stream, f, buf)
		e.pace(stream)
		if errors.Is(err, os.ErrDeadlineExceeded) && f.SetReadDeadline(time.Time{}) == nil {
			e.takeRest(stream, f, buf)
			if e.terminal == nil {
				go discard(f) // ends with the processes that hold the other end
				return
			}
		}
		if err != nil {
			_ = f.Close()
			return
		}
	}
}

// takeRest reads what the command had written before the reading stopped.
func (e *Exec) takeRest(stream Stream, f *os.File, buf []byte) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for left := e.rest(); left > 0 && (left <= maxRest || !e.wasKilled()); {
		var n int
		var readErr error
		err := raw.Control(func(fd uintptr) { n, readErr = e.take(stream, int(fd), buf) })
		if n <= 0 || readErr != nil || err != nil {
			return
		}
		left -= n
		e.pace(stream)
	}
}

// rest is how much of a stream that is no longer read may be the command's. gVisor's terminals hold whatever is written
// to them; of a command that was killed nobody misses it.
func (e *Exec) rest() int {
	if e.wasKilled() {
		return maxRest
	}
	return max(maxRest, e.held())
}

func discard(f *os.File) {
	defer f.Close()
	buf := make([]byte, idleSize)
	for {
		if _, err := f.Read(buf); err != nil {
			return
		}
	}
}

func (e *Exec) add(stream Stream, b []byte) {
	if e.Command.Name == "" {
		e.audience.send(Chunk{Stream: stream, Data: bytes.Clone(b)})
		return
	}
	if e.reclaim != nil {
		e.reclaim(int64(len(b)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.spools[stream].add(b) {
		close(e.changed)
		e.changed = make(chan struct{})
	}
}
