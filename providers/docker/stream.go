package docker

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"

	"github.com/docker/docker/api/types"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/guestconn"
)

// maxWords is how much of the guest's standard error is kept: the last words of one that crashed.
const maxWords = 4 << 10

// stream is the guest's standard input and output as one connection. The engine wraps what the guest writes into
// frames of either output; only standard output belongs to the conversation. Nothing is buffered by frame length,
// which the peer chooses.
type stream struct {
	guestconn.Ending

	attached types.HijackedResponse
	in       *bufio.Reader // of what is attached
	left     uint32        // bytes of the current stdout frame not yet read

	mu    sync.Mutex
	words []byte
}

// inputBuffer holds two of the frames that an engine makes of much output.
const inputBuffer = 64 << 10

func newStream(attached types.HijackedResponse) *stream {
	return &stream{attached: attached, in: bufio.NewReaderSize(attached.Reader, inputBuffer)}
}

func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, s.note(err)
		}
	}
	if uint32(min(len(p), 1<<30)) > s.left {
		p = p[:s.left]
	}
	n, err := s.in.Read(p)
	s.left -= uint32(n)
	return n, s.note(err)
}

// note remembers that the other side ended the stream. What it returns may be shown to users.
func (s *stream) note(err error) error { return engineerr.Unaddressed(s.Note(err)) }

// next reads one frame header, and the whole frame unless it is standard output.
func (s *stream) next() error {
	var header [8]byte
	if _, err := io.ReadFull(s.in, header[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(header[4:])
	switch header[0] {
	case 1:
		s.left = size
		return nil
	case 2:
		_, err := io.CopyN(words{s}, s.in, int64(size))
		return err
	default:
		return providers.Internal.Errorf("the engine sent a frame of stream %d", header[0])
	}
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.attached.Conn.Write(p)
	return n, s.note(err)
}

// Close detaches. The guest keeps its input open for the next who attaches.
func (s *stream) Close() error { return s.Shut(s.attached.Conn) }

// LastWords is the end of what the guest wrote to its standard error.
func (s *stream) LastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.words)
}

// words keeps the end of what is written to it.
type words struct{ s *stream }

func (w words) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.words = append(w.s.words, p...)
	if over := len(w.s.words) - maxWords; over > 0 {
		w.s.words = append(w.s.words[:0], w.s.words[over:]...)
	}
	return len(p), nil
}
