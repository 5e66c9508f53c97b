package link

import (
	"cmp"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits of the multiplexer that runs over one conversation.
const (
	// What is in flight per stream, in bytes: to the guest, which keeps it in its sandbox's memory, and to the worker,
	// where all streams of a sandbox together may have linkHolds waiting.
	guestWindow, workerWindow = 1 << 20, 256 << 10

	backlog = 256 // streams that wait to be accepted
	// A paused sandbox is silent for as long as it is paused, so nothing here may give it up for being slow.
	writePatience = 24 * time.Hour
	// Linger is how long a closed stream waits for the other side to close it, too, before it is reset.
	Linger = 30 * time.Second
)

// Carrier is a conversation: Conn, or what Serve hands over.
type Carrier interface {
	io.ReadWriteCloser
	// WriteAfter writes p with a few bytes before it, of which the returned number does not count.
	WriteAfter(lead, p []byte) (int, error)
}

// AcceptStreams is the guest's side of the multiplexer. A linger of 0 is Linger.
func AcceptStreams(conn Carrier, linger time.Duration) (*Streams, error) {
	return newStreams(conn, guestWindow, linger, yamux.Server)
}

// OpenStreams is the worker's side. Of the streams that a hostile guest opens a backlog waits until they are accepted,
// each with no more than strangerHolds, and the others are turned away; what waits in all streams to be read is no more
// than linkHolds. A linger of 0 is Linger.
func OpenStreams(conn Carrier, linger time.Duration) (*Streams, error) {
	return newStreams(conn, workerWindow, linger, yamux.Client)
}

// Streams is the multiplexer over one conversation. It lets go of those that read from a stream before it ends: left to
// itself, yamux makes all of them spin from the moment that it begins to end, for as long as they keep it from ending.
type Streams struct {
	mux    *yamux.Session
	wire   *joined
	linger time.Duration

	mu    sync.Mutex
	open  map[*yamux.Stream]struct{} // nil once it ends
	ended bool
}

func newStreams(
	conn Carrier,
	window uint32,
	linger time.Duration,
	start func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error),
) (*Streams, error) {
	s := &Streams{open: map[*yamux.Stream]struct{}{}, linger: cmp.Or(linger, Linger)}
	s.wire = &joined{Carrier: conn, ending: s.letGo}
	if window == workerWindow {
		s.wire.inbox = newInbox()
	}
	mux, err := start(s.wire, muxConfig(window, s.linger))
	s.mux = mux
	return s, err
}

// Open opens a stream.
func (s *Streams) Open() (*Stream, error) { return s.hold(s.mux.OpenStream()) }

// Accept returns the next stream that the other side has opened.
func (s *Streams) Accept() (*Stream, error) { return s.hold(s.mux.AcceptStream()) }

// Addr names the multiplexer's end.
func (s *Streams) Addr() net.Addr { return s.mux.Addr() }

// Done is closed when the multiplexer has ended.
func (s *Streams) Done() <-chan struct{} { return s.mux.CloseChan() }

// Close ends all streams and closes the conversation.
func (s *Streams) Close() error {
	s.letGo()
	s.wire.inbox.end()
	err := s.mux.Close()
	s.wire.inbox.wait()
	return err
}

func (s *Streams) hold(stream *yamux.Stream, err error) (*Stream, error) {
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
	held := &Stream{id: stream.StreamID(), of: s}
	held.mux.Store(stream)
	s.wire.inbox.attach(held)
	return held, nil
}

func (s *Streams) release(stream *yamux.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, stream)
}

// isOver says whether nothing will come any more.
func (s *Streams) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.mux.IsClosed()
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

func muxConfig(window uint32, linger time.Duration) *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = writePatience
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = linger
	c.MaxStreamWindowSize = window
	c.LogOutput = io.Discard
	return c
}
