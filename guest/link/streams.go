package link

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits of the multiplexer that runs over one conversation.
const (
	streamWindow = 256 << 10 // bytes in flight per stream and direction
	backlog      = 256       // streams that wait to be accepted
	// A paused sandbox is silent for as long as it is paused, so nothing here may give it up for being slow.
	writePatience = 24 * time.Hour
	closePatience = 30 * time.Second
)

// AcceptStreams is the guest's side of the multiplexer: it only accepts.
func AcceptStreams(conn io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Server(&joined{ReadWriteCloser: conn}, muxConfig())
}

// OpenStreams is the worker's side: it only opens. Of the streams that a hostile guest opens a backlog waits for ever,
// each with no more than a window of bytes, and the others are turned away.
func OpenStreams(conn io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Client(&joined{ReadWriteCloser: conn}, muxConfig())
}

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = writePatience
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closePatience
	c.MaxStreamWindowSize = streamWindow
	c.LogOutput = io.Discard
	return c
}

// muxHeader is the length of yamux's header; the header of a data message is written apart from its body.
const muxHeader = 12

// joined sends a data header together with its body: one frame instead of two.
type joined struct {
	io.ReadWriteCloser

	pending []byte
}

func (j *joined) Write(p []byte) (int, error) {
	if len(j.pending) == 0 && len(p) == muxHeader && announcesBody(p) {
		j.pending = append(j.pending, p...)
		return len(p), nil
	}
	if len(j.pending) == 0 {
		return j.ReadWriteCloser.Write(p)
	}
	j.pending = append(j.pending, p...)
	n, err := j.ReadWriteCloser.Write(j.pending)
	head := len(j.pending) - len(p)
	j.pending = j.pending[:0]
	return max(n-head, 0), err
}

// announcesBody says whether a yamux header is that of a data message (type 0) with a length, so a body follows.
func announcesBody(h []byte) bool {
	return h[1] == 0 && (h[8]|h[9]|h[10]|h[11]) != 0
}
