package link

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"testing"
)

// TestChecksum compares both ways of adding up with the library's.
func TestChecksum(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 20, short - 1, short, short + 1, MaxPayload} {
		whole := make([]byte, crcOffset+size)
		for i := range whole {
			whole[i] = byte(i*i + size)
		}
		want := crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli))
		if got := checksum(whole[:crcOffset], whole[crcOffset:]); got != want {
			t.Errorf("%d bytes: %#x, want %#x", size, got, want)
		}
	}
}

// frames reads everything from r and returns the intact frames, with their payloads copied.
func frames(t *testing.T, r io.Reader) []frame {
	t.Helper()
	fr := newFrameReader(r)
	var all []frame
	for {
		f, err := fr.next()
		switch {
		case errors.Is(err, errGarbage):
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		default:
			f.payload = bytes.Clone(f.payload)
			all = append(all, f)
		}
	}
}

// dribble reads one byte at a time.
type dribble struct{ io.Reader }

func (d dribble) Read(p []byte) (int, error) { return d.Reader.Read(p[:1]) }

func TestFramesSurviveTheWire(t *testing.T) {
	t.Parallel()
	sent := []frame{
		{kind: hello, payload: []byte("nonce")},
		{kind: data, epoch: 1<<32 - 1, seq: 7, payload: bytes.Repeat([]byte{0xf5, 'S', 'y', 0x1a}, MaxPayload/4)},
		{kind: reset, epoch: 3, payload: []byte{}},
		{kind: data, payload: make([]byte, MaxPayload)},
	}
	var wire []byte
	for _, f := range sent {
		wire = appendFrame(wire, f)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(wire), "byte by byte": dribble{bytes.NewReader(wire)}} {
		got := frames(t, r)
		if len(got) != len(sent) {
			t.Fatalf("%s: got %d frames", name, len(got))
		}
		for i := range got {
			same := got[i].kind == sent[i].kind && got[i].epoch == sent[i].epoch && got[i].seq == sent[i].seq
			if !same || !bytes.Equal(got[i].payload, sent[i].payload) {
				t.Errorf("%s: frame %d came back changed", name, i)
			}
		}
	}
}

func TestEveryDamagedByteIsNoticed(t *testing.T) {
	t.Parallel()
	wire := appendFrame(nil, frame{kind: data, epoch: 2, seq: 1, payload: []byte("payload")})
	padding := appendFrame(nil, frame{kind: pad, payload: make([]byte, MaxPayload)})
	for i := range wire {
		damaged := append(bytes.Clone(wire), padding...)
		damaged[i] ^= 0x10
		for _, f := range frames(t, bytes.NewReader(damaged)) {
			if f.kind == data {
				t.Errorf("damage in byte %d went unnoticed", i)
			}
		}
	}
}

// FuzzFrameReader checks what a takeover relies on: whatever came before, a hello with padding behind it is found.
func FuzzFrameReader(f *testing.F) {
	whole := appendFrame(nil, frame{kind: data, epoch: 1, payload: bytes.Repeat([]byte("x"), 1000)})
	longest := appendFrame(nil, frame{kind: data, epoch: 1, payload: make([]byte, MaxPayload)})
	for _, seed := range [][]byte{
		nil, whole, whole[:3], whole[:headerSize-1], whole[:headerSize], whole[:headerSize+9], longest[:headerSize+9],
		append(bytes.Clone(whole[:200]), whole...), append([]byte("noise"), whole...), magic(),
		bytes.Repeat(magic(), 9), bytes.Repeat(longest[:headerSize], 5),
		{0xf5},
		[]byte("HTTP/1.1 200 OK\r\n\r\n"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, before []byte) {
		wire := appendFrame(bytes.Clone(before), frame{kind: hello, payload: []byte("the nonce")})
		wire = appendFrame(wire, frame{kind: pad, payload: make([]byte, MaxPayload)})
		found := false
		for _, got := range frames(t, bytes.NewReader(wire)) {
			if len(got.payload) > MaxPayload {
				t.Fatalf("a payload of %d bytes", len(got.payload))
			}
			found = found || got.kind == hello && string(got.payload) == "the nonce"
		}
		if !found {
			t.Error("the hello was lost")
		}
	})
}
