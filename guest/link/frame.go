// Package link carries one reliable conversation at a time over a byte stream that is not reliable: the standard input
// and output of a sandbox's first process, as Docker's attach gives it.
//
// Several workers may be attached to one sandbox. What they write is interleaved at arbitrary places, a worker may die
// in the middle of a write, and everything the sandbox writes reaches all of them, from wherever in the stream they
// attached. So the bytes travel in frames that can be found again after garbage, and each conversation is an epoch: a
// worker says hello with a nonce, the guest answers welcome with the next epoch, and from then on only frames of that
// epoch count. Whoever sees a newer epoch knows that another worker has taken over.
//
// Inside an epoch nothing may be missing. A lost or damaged frame ends the epoch with ErrTorn on both sides, and the
// worker dials again; what must survive that lives in the guest, not in the link.
package link

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// MaxPayload is the most that one frame carries, in bytes.
const MaxPayload = 1<<16 - 1

// kind says what a frame is for.
type kind uint8

const (
	hello   kind = 1 + iota // worker to guest: start an epoch; the payload is the nonce
	welcome                 // guest to worker: the epoch has started; the payload is the nonce of its hello
	data                    // a piece of the conversation
	reset                   // guest to worker: the epoch is over
	pad                     // nothing; pushes a torn frame out of the reader
)

// frame is one unit on the wire.
type frame struct {
	kind    kind
	epoch   uint32
	seq     uint32 // counts the data frames of one direction in one epoch, from 0
	lead    []byte // what goes before the payload, as a part of it; empty in what was read
	payload []byte
}

// On the wire, big-endian: magic 4, kind 1, version 1, payload length 2, epoch 4, seq 4, CRC-32C of all that and of the
// payload 4, payload.
const (
	headerSize = 20
	crcOffset  = 16
	version    = 1
	frameSize  = headerSize + MaxPayload
	// piece is what a frame carries of something longer: with its header it fills buffers of 64 and of 32 KiB.
	piece = 64<<10 - headerSize
)

// errGarbage says that bytes were skipped; reading on finds the next frame.
var errGarbage = errors.New("the link received bytes that are not a frame")

func magic() []byte { return []byte{0xf5, 'S', 'y', 0x1a} }

// appendFrame encodes f behind b. The payload with its lead must not exceed MaxPayload.
func appendFrame(b []byte, f frame) []byte {
	start := len(b)
	b = append(b, magic()...)
	b = append(b, byte(f.kind), version)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.lead)+len(f.payload)))
	b = binary.BigEndian.AppendUint32(b, f.epoch)
	b = binary.BigEndian.AppendUint32(b, f.seq)
	b = append(b, 0, 0, 0, 0)
	b = append(b, f.lead...)
	b = append(b, f.payload...)
	whole := b[start:]
	binary.BigEndian.PutUint32(whole[crcOffset:], checksum(whole[:crcOffset], whole[headerSize:]))
	return b
}

// pieces calls send with what of lead and p together fits into one frame, one after the other, and returns how much of
// p was sent.
func pieces(lead, p []byte, send func(lead, p []byte) error) (int, error) {
	done := 0
	for done < len(p) {
		chunk := p[done:min(len(p), done+piece-len(lead))]
		if err := send(lead, chunk); err != nil {
			return done, err
		}
		done += len(chunk)
		lead = nil
	}
	return done, nil
}

// frameReader finds frames in a stream that may hold anything. Its memory is two frames, whatever arrives.
type frameReader struct {
	r *bufio.Reader
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 2*frameSize)}
}

// next returns the next intact frame; its payload is valid until the following call. It answers errGarbage each time it
// had to skip bytes, so that an epoch can end at once instead of waiting for a frame that shows the gap.
func (r *frameReader) next() (frame, error) {
	header, err := r.r.Peek(headerSize)
	if err != nil {
		return frame{}, err
	}
	if !bytes.HasPrefix(header, magic()) || header[5] != version {
		return frame{}, r.skip()
	}
	size := headerSize + int(binary.BigEndian.Uint16(header[6:]))
	raw, err := r.r.Peek(size)
	if err != nil {
		return frame{}, err
	}
	if binary.BigEndian.Uint32(raw[crcOffset:]) != checksum(raw[:crcOffset], raw[headerSize:]) {
		return frame{}, r.skip()
	}
	_, err = r.r.Discard(size) // only moves the read position: raw stays as it is until the next Peek
	return frame{
		kind:    kind(raw[4]),
		epoch:   binary.BigEndian.Uint32(raw[8:]),
		seq:     binary.BigEndian.Uint32(raw[12:]),
		payload: raw[headerSize:],
	}, err
}

// skip drops at least one byte and everything up to the next place among the buffered bytes where a frame may start.
func (r *frameReader) skip() error {
	buffered, err := r.r.Peek(r.r.Buffered())
	if err != nil {
		return err
	}
	n := bytes.Index(buffered[1:], magic())
	if n < 0 {
		n = max(len(buffered)-len(magic()), 0) // the end may be the beginning of a magic
	}
	if _, err := r.r.Discard(n + 1); err != nil {
		return err
	}
	return errGarbage
}
