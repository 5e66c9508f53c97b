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
	id uint32
	// mux is nil when the stream is over for lack of room: whoever still holds the Stream holds no memory with it.
	mux atomic.Pointer[yamux.Stream]
	of  *Streams

	reading  sync.Mutex // held while yamux is read: two readers of one of its streams can lock each other out for good
	writing  sync.Mutex // held by who writes
	finished atomic.Bool

	ending  sync.Mutex // held by who ends a direction
	closed  atomic.Bool
	crowded atomic.Bool // over for lack of room
}

var _ net.Conn = (*Stream)(nil)

// Read answers io.EOF when the other side has ended its direction, and io.ErrUnexpectedEOF when the link broke off: to
// yamux, both are the same.
func (s *Stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	mux := s.mux.Load()
	if mux == nil {
		return 0, ErrCrowded
	}
	n, err := mux.Read(p)
	s.of.wire.inbox.taken(s, n)
	switch {
	case s.crowded.Load():
		return 0, ErrCrowded
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
	mux := s.mux.Load()
	if mux == nil {
		return 0, ErrCrowded
	}
	n, err := mux.Write(p)
	if err != nil && s.crowded.Load() {
		err = ErrCrowded
	}
	return n, err
}

// Of what is copied into a stream a piece makes one frame of 32 KiB or, when there is much of it, 64 KiB: those on the
// way that pass on buffers of 32 KiB find them full.
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
	return s.of.wire.finish(s.id)
}

// Close ends both directions: nothing can be read any more, and if the other side does not end, too, while the stream
// lingers, it is reset.
func (s *Stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	mux := s.mux.Load()
	if mux == nil {
		s.of.wire.forget(s.id)
		return nil
	}
	s.of.release(mux)
	_ = s.SetReadDeadline(time.Unix(1, 0)) // lets go of who reads
	s.ending.Lock()
	defer s.ending.Unlock()
	defer s.of.wire.forget(s.id)
	err := mux.Close()
	s.of.wire.inbox.detach(s)
	return err
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
			if s.reset() {
				return true
			}
		}
	}
}

// reset says whether the stream was reset. It answers false while somebody reads: that reader finds out.
func (s *Stream) reset() bool {
	if !s.reading.TryLock() {
		return false
	}
	defer s.reading.Unlock()
	mux := s.mux.Load()
	if mux == nil {
		return true
	}
	_, err := mux.Read(nil)
	return err != nil && !errors.Is(err, io.EOF)
}

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error {
	if mux := s.mux.Load(); mux != nil {
		return mux.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	if mux := s.mux.Load(); mux != nil {
		return mux.SetWriteDeadline(t)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (s *Stream) LocalAddr() net.Addr { return s.of.Addr() }

// RemoteAddr implements net.Conn.
func (s *Stream) RemoteAddr() net.Addr { return s.of.mux.RemoteAddr() }

// empty drops what came for a closed stream. Close has let go of whoever reads.
func (s *Stream) empty() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if mux := s.mux.Load(); mux != nil {
		_, _ = io.Copy(io.Discard, mux)
		mux.Shrink()
	}
}

// shrink gives the memory back that held what was read.
func (s *Stream) shrink() {
	if mux := s.mux.Load(); mux != nil {
		mux.Shrink()
	}
}
