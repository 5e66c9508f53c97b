package local

import (
	"net"
	"os"
	"path/filepath"

	"sandyard/providers/guestconn"
	"sandyard/providers/local/shim"
)

// stream is a connection to the shim, and so to the guest's standard input and output.
type stream struct {
	guestconn.Ending

	of   box
	conn *net.UnixConn
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	return n, s.Note(err)
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	return n, s.Note(err)
}

// LastWords is what the shim wrote down of the guest's end.
func (s *stream) LastWords() string {
	text, _ := os.ReadFile(filepath.Join(s.of.dir, shim.EndFile))
	return string(text)
}

// Close detaches. The shim keeps the guest's input open for the next who attaches.
func (s *stream) Close() error { return s.Shut(s.conn) }
