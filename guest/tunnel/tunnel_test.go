package tunnel_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"

	"sandyard/guest/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a stream whose other end has said all it has to say, and which keeps what it is told.
type scripted struct {
	net.Conn // of which no other method is called

	said *bytes.Reader
	told bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)  { return s.said.Read(p) }
func (s *scripted) Write(p []byte) (int, error) { return s.told.Write(p) }
func (s *scripted) Close() error                { return nil }

func stream(said []byte) *scripted { return &scripted{said: bytes.NewReader(said)} }

// FuzzPieces reads what the other end of a tunnel may say, as both ends do: no more bytes come out than went in, an end is only
// what was said to be one, and what one end writes the other reads.
func FuzzPieces(f *testing.F) {
	for _, said := range []string{
		"", "\x00", "\x00\x00", "\x00\x03abc\x00\x00", "\x00\x03abc", "\x00\x03ab", "\xff\xff", "\x00\x00\x00\x03abc", "\x00\x01a\x00\x01b\x00\x00rest",
		"\x00\x0bexample:443", "\x01\x00\x06denied", "\x03\xff\xff", "\x00", "\x09\x00\x00", "\x02\x00\x02\xff\xfe",
	} {
		f.Add([]byte(said), 3)
	}
	f.Fuzz(func(t *testing.T, said []byte, size int) {
		if target, err := tunnel.Target(bytes.NewReader(said)); err == nil && (len(target) > tunnel.MaxTarget || len(target) > len(said)) {
			t.Errorf("a target of %d bytes", len(target))
		}
		accepted, err := tunnel.Accept(stream(said))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(accepted)
		checkPieces(t, said, got, err)
		checkAsked(t, said)
		checkRoundTrip(t, said, size)
	})
}

// checkPieces compares with a reading of the same pieces by a simpler reader.
func checkPieces(t *testing.T, said, got []byte, err error) {
	t.Helper()
	var want []byte
	ended := false
	for len(said) >= 2 && !ended {
		n := int(said[0])<<8 | int(said[1])
		said, ended = said[2:], n == 0
		n = min(n, len(said))
		want, said = append(want, said[:n]...), said[n:]
	}
	if !bytes.Equal(got, want) || (err == nil) != ended || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %d bytes, %v; want %d, ended %v", len(got), err, len(want), ended)
	}
}

func checkAsked(t *testing.T, said []byte) {
	t.Helper()
	_, err := tunnel.Ask(stream(said), "example:443")
	var refused *tunnel.RefusedError
	switch {
	case err == nil && (len(said) == 0 || said[0] != byte(tunnel.Open)):
		t.Errorf("%x is taken for a connection", said)
	case errors.As(err, &refused) && (refused.Answer == tunnel.Open || len(refused.Message) > len(said)):
		t.Errorf("%x refuses with %+v", said, refused)
	}
}

// checkRoundTrip writes in portions and reads what came of it.
func checkRoundTrip(t *testing.T, text []byte, size int) {
	t.Helper()
	size = 1 + (size&0xffff)%(3*tunnel.Piece)
	out := stream(nil)
	conn, err := tunnel.Accept(out)
	for rest := text; err == nil && len(rest) > 0; rest = rest[min(size, len(rest)):] {
		_, err = conn.Write(rest[:min(size, len(rest))])
	}
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	back, err := tunnel.Ask(stream(out.told.Bytes()), "example:443")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(back); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes became %d, %v", len(text), len(got), err)
	}
}
