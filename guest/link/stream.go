package link

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// Stream is a net.Conn whose directions end apart from each other. yamux has one Close for both ends of that, which
// resets the stream when the other side does not close it in time; so CloseWrite says to the other side what yamux
// would, and yamux is told nothing until Close.
type Stream struct {
	*yamux.Stream

	of       *Streams
	writing  sync.Mutex // held by who writes
	finished atomic.Bool

	ending sync.Mutex // held by who ends a direction
	closed atomic.Bool
}

var _ net.Conn = (*Stream)(nil)

// Read answers io.EOF when the other side has ended its direction, and io.ErrUnexpectedEOF when the link broke off: to
// yamux, both are the same.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	switch {
	case err == nil:
	case s.closed.Load():
		err = net.ErrClosed
	case s.of.isOver():
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *Stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.finished.Load() {
		return 0, net.ErrClosed
	}
	return s.Stream.Write(p)
}

// Of what is copied into a stream a piece makes one frame of 32 KiB or, when there is much of it, 64 KiB: those on the way
// that pass on buffers of 32 KiB find them full.
const (
	smallPiece = 32<<10 - headerSize - muxHeader
	largePiece = piece - muxHeader
)

// ReadFrom implements io.ReaderFrom, for io.Copy.
func (s *Stream) ReadFrom(r io.Reader) (int64, error) {
	var sum int64
	for buf := make([]byte, pieceOf(r)); ; {
		n, err := r.Read(buf)
		if n > 0 {
			written, failed := s.Write(buf[:n])
			sum += int64(written)
			if failed != nil {
				return sum, failed
			}
		}
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		if n == smallPiece {
			buf = make([]byte, largePiece)
		}
	}
}

// pieceOf is how much of r to ask for at first.
func pieceOf(r io.Reader) int64 {
	if l, ok := r.(*io.LimitedReader); ok {
		return min(max(l.N, 1), smallPiece)
	}
	return smallPiece
}

// CloseWrite ends our direction: the other side reads all that was written, and then the end. What it says can be read
// until its own end, however long that takes.
func (s *Stream) CloseWrite() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.closed.Load() || s.finished.Swap(true) {
		return nil
	}
	_ = s.SetWriteDeadline(time.Unix(1, 0)) // lets go of who waits for the other side to take more
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.of.wire.finish(s.StreamID())
}

// Close ends both directions: nothing can be read any more, and if the other side does not end, too, while the stream
// lingers, it is reset.
func (s *Stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.of.release(s.Stream)
	_ = s.SetReadDeadline(time.Unix(1, 0)) // lets go of who reads
	s.ending.Lock()
	defer s.ending.Unlock()
	defer s.of.wire.forget(s.StreamID())
	return s.Stream.Close()
}

// Gone waits until a stream whose other direction has ended is of no use any more, because it was reset or the link has
// ended; false says that done was closed before. Nothing can be read that would tell.
func (s *Stream) Gone(done <-chan struct{}) bool {
	look := time.NewTicker(s.of.linger)
	defer look.Stop()
	for {
		select {
		case <-done:
			return false
		case <-s.of.Done():
			return true
		case <-look.C:
			if _, err := s.Stream.Read(nil); err != nil && !errors.Is(err, io.EOF) {
				return true
			}
		}
	}
}
