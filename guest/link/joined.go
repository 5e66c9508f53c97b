package link

import (
	"bytes"
	"encoding/binary"
	"sync"
)

// muxHeader is the length of yamux's header; the header of a data message is written apart from its body.
const muxHeader = 12

// windowUpdate is the type of yamux's messages that carry flags alone. Syn is the flag that opens a stream, fin the one
// that ends a direction, and rst the one that ends a stream at once.
const (
	windowUpdate = 1

	syn = 1
	fin = 4
	rst = 8
)

// joined sends a data header together with its body: one frame instead of two. It tells of its end before yamux hears.
// It also ends directions of streams of which yamux believes that they go on.
type joined struct {
	Carrier

	ending  func()
	inbox   *inbox // nil = all that comes is passed on
	pending []byte

	mu       sync.Mutex // held while a message is written
	finished sync.Map   // ids of streams whose end was told here
}

func (j *joined) Read(p []byte) (int, error) {
	n, err := j.read(p)
	if err != nil {
		j.ending()
	}
	return n, err
}

func (j *joined) read(p []byte) (int, error) {
	if j.inbox == nil {
		return j.Carrier.Read(p)
	}
	return j.inbox.read(j, p)
}

// Write implements io.Writer, for yamux.
func (j *joined) Write(p []byte) (int, error) {
	if len(j.pending) == 0 && len(p) == muxHeader && announcesBody(p) {
		j.pending = append(j.pending, p...)
		return len(p), nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) == 0 {
		j.inbox.opening(p)
		p = j.once(p)
	}
	n, err := j.WriteAfter(j.pending, p)
	j.pending = j.pending[:0]
	return n, err
}

// once returns a header without an end that was told before: the other side takes a second one for a broken protocol.
func (j *joined) once(h []byte) []byte {
	if len(h) != muxHeader || h[1] != windowUpdate || h[3]&fin == 0 {
		return h
	}
	if _, told := j.finished.Load(binary.BigEndian.Uint32(h[4:])); told {
		h = bytes.Clone(h)
		h[3] &^= fin
	}
	return h
}

// finish tells the end of our direction of a stream to which nothing more is written.
func (j *joined) finish(stream uint32) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finished.Store(stream, true)
	_, err := j.WriteAfter(nil, flagsAlone(fin, stream))
	return err
}

// breakOff tells the other side that a stream is over.
func (j *joined) breakOff(stream uint32) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.WriteAfter(nil, flagsAlone(rst, stream))
	return err
}

// flagsAlone is a yamux message that says nothing but flags.
func flagsAlone(flags uint16, stream uint32) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0, windowUpdate}, flags)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(h, stream), 0)
}

// forget is called when yamux has ended the stream, too.
func (j *joined) forget(stream uint32) { j.finished.Delete(stream) }

// announcesBody says whether a yamux header is that of a data message (type 0) with a length, so a body follows.
func announcesBody(h []byte) bool {
	return h[1] == 0 && (h[8]|h[9]|h[10]|h[11]) != 0
}
