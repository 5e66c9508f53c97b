package link

import (
	"encoding/binary"
	"errors"
	"io"
)

// inbox stands between what a guest says and the multiplexer that believes it: yamux bounds each stream and neither
// their number nor their sum, and keeps what came for a stream until both sides have ended it. It reads the headers of
// the messages, and lets through what there is room for. A nil inbox lets all through.
type inbox struct {
	holdings

	raw     [muxHeader]byte // the header of the message that comes
	waits   bool            // it waits for room
	crowded []*Stream       // are over when yamux has read what is handed on
	header  []byte          // what is left of headers that are handed on
	body    uint32          // bytes that follow and are handed on
}

// read hands on the next bytes, never of a header and a body at once.
func (b *inbox) read(j *joined, p []byte) (int, error) {
	for len(b.header) == 0 && b.body == 0 {
		b.arrived()
		if err := b.next(j); err != nil {
			return 0, err
		}
	}
	if len(b.header) > 0 {
		n := copy(p, b.header)
		b.header = b.header[n:]
		return n, nil
	}
	n, err := j.Carrier.Read(p[:min(len(p), int(b.body))])
	b.body -= uint32(n)
	return n, err
}

// next reads a header, unless it has one that waits for room, and decides what becomes of its message.
func (b *inbox) next(j *joined) error {
	h := b.raw[:]
	for _, s := range b.crowded { // yamux has let go of them
		b.abandon(s)
	}
	b.crowded = nil
	if !b.waits {
		if _, err := io.ReadFull(j.Carrier, h); err != nil {
			return err
		}
	}
	if h[0] != 0 || h[1] > windowUpdate { // not a stream's, or yamux ends it all
		b.header = h
		return nil
	}
	flags, id, length := binary.BigEndian.Uint16(h[2:]), binary.BigEndian.Uint32(h[4:]), uint32(0)
	if announcesBody(h) {
		length = binary.BigEndian.Uint32(h[8:])
	}
	if flags&syn != 0 && !b.waits {
		if err := b.admit(id); errors.Is(err, errFull) {
			return errors.Join(b.tellOver(j, id), drop(j, length))
		} else if err != nil {
			return err
		}
	}
	return b.pass(j, flags, id, length)
}

// pass lets a message through, a part of it, or, before it, those that end other streams.
func (b *inbox) pass(j *joined, flags uint16, id, length uint32) error {
	verdict, closed := taken, []*holding(nil)
	if length > 0 {
		verdict, closed = b.take(id, int(min(length, workerWindow)), b.waits)
	}
	b.waits = verdict == full
	switch verdict {
	case taken:
		b.header, b.body = b.raw[:], length
		return nil
	case full:
		return b.closeAll(j, closed)
	case over:
		b.header = append(flagsAlone(flags, id), flagsAlone(rst, id)...)
		return errors.Join(b.tellOver(j, id), drop(j, length))
	default:
		b.header = flagsAlone(flags, id)
		return drop(j, length)
	}
}

// closeAll ends streams on both sides, for yamux by messages that come before the one that waits.
func (b *inbox) closeAll(j *joined, closed []*holding) error {
	for _, h := range closed {
		b.header = append(b.header, flagsAlone(rst, h.stream.id)...)
		if err := b.tellOver(j, h.stream.id); err != nil {
			return err
		}
		h.stream.crowded.Store(true)
		b.crowded = append(b.crowded, h.stream)
	}
	return nil
}

func drop(j *joined, length uint32) error {
	_, err := io.CopyN(io.Discard, j.Carrier, int64(length))
	return err
}

// opening notes a stream that we open, by the header of what is said about it.
func (b *inbox) opening(h []byte) {
	if b != nil && len(h) == muxHeader && h[1] <= windowUpdate && binary.BigEndian.Uint16(h[2:])&syn != 0 {
		b.note(binary.BigEndian.Uint32(h[4:]))
	}
}

// attach tells whose the memory of a stream is.
func (b *inbox) attach(s *Stream) {
	if b != nil {
		b.accepted(s)
	}
}

// taken counts what was read from a stream.
func (b *inbox) taken(s *Stream, n int) {
	if b != nil && n > 0 {
		b.less(s, n)
	}
}

// detach gives the memory of a closed stream back; what still comes for it is dropped.
func (b *inbox) detach(s *Stream) {
	if b != nil {
		b.forget(s)
	}
}

// end lets go of who waits for room.
func (b *inbox) end() {
	if b != nil {
		b.stop()
	}
}

// wait waits for the streams that are being closed, after end.
func (b *inbox) wait() {
	if b != nil {
		b.closers.Wait()
	}
}
