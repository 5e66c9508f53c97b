package link

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits of the multiplexer that runs over one conversation.
const (
	// What is in flight per stream, in bytes: to the guest, which keeps it in its sandbox's memory, and to the worker, where
	// every stream of every hostile sandbox may have this much waiting.
	guestWindow, workerWindow = 1 << 20, 256 << 10

	backlog = 256 // streams that wait to be accepted
	// A paused sandbox is silent for as long as it is paused, so nothing here may give it up for being slow.
	writePatience = 24 * time.Hour
	closePatience = 30 * time.Second
)

// Carrier is a conversation: Conn, or what Serve hands over.
type Carrier interface {
	io.ReadWriteCloser
	// WriteAfter writes p with a few bytes before it, of which the returned number does not count.
	WriteAfter(lead, p []byte) (int, error)
}

// AcceptStreams is the guest's side of the multiplexer.
func AcceptStreams(conn Carrier) (*Streams, error) {
	return newStreams(conn, guestWindow, yamux.Server)
}

// OpenStreams is the worker's side. Of the streams that a hostile guest opens a backlog waits until they are accepted,
// each with no more than a window of bytes, and the others are turned away.
func OpenStreams(conn Carrier) (*Streams, error) {
	return newStreams(conn, workerWindow, yamux.Client)
}

// Streams is the multiplexer over one conversation. It lets go of those that read from a stream before it ends: left to
// itself, yamux makes all of them spin from the moment that it begins to end, for as long as they keep it from ending.
type Streams struct {
	mux *yamux.Session

	mu    sync.Mutex
	open  map[*yamux.Stream]struct{} // nil once it ends
	ended bool
}

func newStreams(conn Carrier, window uint32, start func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) (*Streams, error) {
	s := &Streams{open: map[*yamux.Stream]struct{}{}}
	mux, err := start(&joined{Carrier: conn, ending: s.letGo}, muxConfig(window))
	s.mux = mux
	return s, err
}

// Open opens a stream.
func (s *Streams) Open() (net.Conn, error) { return s.hold(s.mux.OpenStream()) }

// Accept returns the next stream that the other side has opened.
func (s *Streams) Accept() (net.Conn, error) { return s.hold(s.mux.AcceptStream()) }

// Addr names the multiplexer's end.
func (s *Streams) Addr() net.Addr { return s.mux.Addr() }

// Done is closed when the multiplexer has ended.
func (s *Streams) Done() <-chan struct{} { return s.mux.CloseChan() }

// Close ends all streams and closes the conversation.
func (s *Streams) Close() error {
	s.letGo()
	return s.mux.Close()
}

func (s *Streams) hold(stream *yamux.Stream, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = stream.SetReadDeadline(time.Unix(1, 0))
	} else {
		s.open[stream] = struct{}{}
	}
	return &heldStream{stream, s}, nil
}

// letGo makes all that read from a stream return.
func (s *Streams) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.open {
		_ = stream.SetReadDeadline(time.Unix(1, 0))
	}
	s.open, s.ended = nil, true
}

// heldStream is a stream until its Close, which ends our direction.
type heldStream struct {
	*yamux.Stream

	of *Streams
}

// Of what is copied into a stream a piece makes one frame of 32 KiB or, when there is much of it, 64 KiB: those on the way
// that pass on buffers of 32 KiB find them full.
const (
	smallPiece = 32<<10 - headerSize - muxHeader
	largePiece = piece - muxHeader
)

// ReadFrom implements io.ReaderFrom, for io.Copy.
func (h *heldStream) ReadFrom(r io.Reader) (int64, error) {
	var sum int64
	for buf := make([]byte, pieceOf(r)); ; {
		n, err := r.Read(buf)
		if n > 0 {
			written, failed := h.Write(buf[:n])
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

func (h *heldStream) Close() error {
	h.of.mu.Lock()
	delete(h.of.open, h.Stream)
	h.of.mu.Unlock()
	return h.Stream.Close()
}

func muxConfig(window uint32) *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = writePatience
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closePatience
	c.MaxStreamWindowSize = window
	c.LogOutput = io.Discard
	return c
}

// muxHeader is the length of yamux's header; the header of a data message is written apart from its body.
const muxHeader = 12

// joined sends a data header together with its body: one frame instead of two. It tells of its end before yamux hears.
type joined struct {
	Carrier

	ending  func()
	pending []byte
}

func (j *joined) Read(p []byte) (int, error) {
	n, err := j.Carrier.Read(p)
	if err != nil {
		j.ending()
	}
	return n, err
}

func (j *joined) Write(p []byte) (int, error) {
	if len(j.pending) == 0 && len(p) == muxHeader && announcesBody(p) {
		j.pending = append(j.pending, p...)
		return len(p), nil
	}
	n, err := j.WriteAfter(j.pending, p)
	j.pending = j.pending[:0]
	return n, err
}

// announcesBody says whether a yamux header is that of a data message (type 0) with a length, so a body follows.
func announcesBody(h []byte) bool {
	return h[1] == 0 && (h[8]|h[9]|h[10]|h[11]) != 0
}
