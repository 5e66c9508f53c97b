package local

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"sandyard/providers/local/shim"
)

// stream is a connection to the shim, and so to the guest's standard input and output. It remembers who ended it.
type stream struct {
	of   box
	conn *net.UnixConn
	once sync.Once
	shut atomic.Bool // closed from our side
	torn atomic.Bool // ended from the other side before that
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	return n, s.note(err)
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	return n, s.note(err)
}

func (s *stream) note(err error) error {
	if err != nil && !s.shut.Load() {
		s.torn.Store(true)
	}
	return err
}

// Torn says that the other side ended the stream before we did.
func (s *stream) Torn() bool { return s.torn.Load() }

// LastWords is what the shim wrote down of the guest's end.
func (s *stream) LastWords() string {
	text, _ := os.ReadFile(filepath.Join(s.of.dir, shim.EndFile))
	return string(text)
}

// Close detaches. The shim keeps the guest's input open for the next who attaches.
func (s *stream) Close() error {
	var err error
	s.once.Do(func() {
		s.shut.Store(true)
		err = s.conn.Close()
	})
	return err
}
