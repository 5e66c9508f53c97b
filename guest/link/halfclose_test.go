package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// pair returns a worker's multiplexer and its guest's.
func pair(t *testing.T, linger time.Duration) (worker, guest *Streams) {
	t.Helper()
	guests := make(chan *Streams, 1)
	raw := serve(t, func(c Carrier) {
		s, err := AcceptStreams(c, linger)
		if err != nil {
			t.Error(err)
			return
		}
		guests <- s
		<-s.Done()
	})
	worker, err := OpenStreams(dial(t, raw), linger)
	if err != nil {
		t.Fatal(err)
	}
	guest = <-guests
	t.Cleanup(func() {
		_ = worker.Close()
		_ = guest.Close()
	})
	return worker, guest
}

// meet opens a stream and returns both its ends.
func meet(t *testing.T, from, to *Streams) (a, b *Stream) {
	t.Helper()
	a, err := from.Open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = to.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestNothingIsKeptOfClosedStreams: in whatever order their directions end.
func TestNothingIsKeptOfClosedStreams(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a, b *Stream) error{
		"both at once":         func(a, b *Stream) error { return errors.Join(a.Close(), b.Close()) },
		"one after the other":  func(a, b *Stream) error { return errors.Join(a.CloseWrite(), b.CloseWrite(), a.Close(), b.Close()) },
		"an end, then a close": func(a, b *Stream) error { return errors.Join(a.CloseWrite(), a.Close(), b.Close()) },
		"a close, then an end": func(a, b *Stream) error { return errors.Join(a.Close(), b.CloseWrite(), b.Close()) },
		"twice": func(a, b *Stream) error {
			return errors.Join(a.Close(), a.CloseWrite(), a.Close(), b.CloseWrite(), b.CloseWrite(), b.Close())
		},
		"one never does": func(a, _ *Stream) error { return errors.Join(a.CloseWrite(), a.Close()) },
	} {
		for _, opener := range []string{"worker", "guest"} {
			t.Run(name+", opened by the "+opener, func(t *testing.T) {
				t.Parallel()
				worker, guest := pair(t, 50*time.Millisecond)
				from, to := worker, guest
				if opener == "guest" {
					from, to = guest, worker
				}
				a, b := meet(t, from, to)
				if err := end(a, b); err != nil {
					t.Error(err)
				}
				for _, s := range []*Streams{worker, guest} {
					testenv.Eventually(t, "it is forgotten", func() bool { return s.mux.NumStreams() == 0 })
					s.wire.finished.Range(func(id, _ any) bool {
						t.Errorf("the end of stream %d is still known", id)
						return true
					})
				}
				c, d := meet(t, from, to) // the link has suffered nothing
				go func() { _, _ = c.Write([]byte("fine")) }()
				if _, err := io.ReadFull(d, make([]byte, 4)); err != nil {
					t.Error(err)
				}
				_, _ = c.Close(), d.Close()
			})
		}
	}
}

// TestAnEndLetsGoOfAWriter: one that waits for the other side to take more, and what it has written counts.
func TestAnEndLetsGoOfAWriter(t *testing.T) {
	t.Parallel()
	worker, guest := pair(t, 0)
	a, b := meet(t, worker, guest)
	message := bytes.Repeat([]byte("0123456789"), guestWindow/5) // twice as much as is taken
	type written struct {
		n   int
		err error
	}
	wrote := make(chan written, 1)
	go func() {
		n, err := a.Write(message)
		wrote <- written{n, err}
	}()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(b, first); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w := <-wrote
	if w.err == nil || w.n >= len(message) {
		t.Fatalf("wrote %d of %d bytes, %v", w.n, len(message), w.err)
	}
	rest, err := io.ReadAll(b)
	if got := append(first, rest...); err != nil || !bytes.Equal(got, message[:w.n]) {
		t.Errorf("%d bytes of %d arrived, %v", len(got), w.n, err)
	}
}

// TestAnEndedLinkIsNoEnd: readers see a break, whenever they come, and Gone sees it where nothing is left to read.
func TestAnEndedLinkIsNoEnd(t *testing.T) {
	t.Parallel()
	worker, guest := pair(t, 0)
	a, b := meet(t, worker, guest)
	half, other := meet(t, worker, guest)
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("a direction that has ended reads %v", err)
	}
	gone, read := make(chan bool), make(chan error)
	go func() { gone <- other.Gone(nil) }()
	go func() {
		_, err := b.Read(make([]byte, 1))
		read <- err
	}()
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("who was reading got %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("who came later got %v", err)
	}
	if !<-gone {
		t.Error("a stream of an ended link is not gone")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed stream reads %v", err)
	}
}
