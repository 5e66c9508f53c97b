package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/docker/docker/api/types"
)

func frame(kind byte, payload string) []byte {
	header := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[4:], uint32(len(payload)))
	return append(header, payload...)
}

func over(r io.Reader) *stream {
	conn, _ := net.Pipe()
	return newStream(types.HijackedResponse{Conn: conn, Reader: bufio.NewReaderSize(r, 16)})
}

func TestStreamKeepsOutputApart(t *testing.T) {
	t.Parallel()
	raw := bytes.Join([][]byte{frame(1, "a"), frame(2, "oops"), frame(1, ""), frame(1, strings.Repeat("b", 100)), frame(2, "!"), frame(1, "c")}, nil)
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(raw), "byte by byte": iotest.OneByteReader(bytes.NewReader(raw))} {
		s := over(r)
		got, err := io.ReadAll(s)
		if want := "a" + strings.Repeat("b", 100) + "c"; err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
		if s.LastWords() != "oops!" {
			t.Errorf("%s: last words %q", name, s.LastWords())
		}
	}
}

func TestStreamBoundsLastWords(t *testing.T) {
	t.Parallel()
	s := over(bytes.NewReader(frame(2, strings.Repeat("x", 1<<20)+"end")))
	if _, err := io.ReadAll(s); err != nil {
		t.Fatal(err)
	}
	if got := s.LastWords(); len(got) != maxWords || !strings.HasSuffix(got, "end") {
		t.Errorf("kept %d bytes", len(got))
	}
}

func FuzzStream(f *testing.F) {
	f.Add(frame(1, "hello"))
	f.Add(frame(2, "hello"))
	f.Add(frame(9, "hello"))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := io.ReadAll(over(bytes.NewReader(raw)))
		if len(got) > len(raw) {
			t.Errorf("%d bytes came out of %d", len(got), len(raw))
		}
		if err == nil && len(raw)%8 != 0 && len(raw) < 8 {
			t.Error("a torn header passed as an end")
		}
	})
}
