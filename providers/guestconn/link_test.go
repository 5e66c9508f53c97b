package guestconn_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/guest/link"
	"sandyard/providers/guestconn"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// body is a sandbox that runs.
type body string

func (b body) SandboxID() string { return string(b) }
func (b body) Usable() error     { return nil }

// backend attaches to guests that answer no call, and counts how often.
type backend struct {
	talks    bool // they send something all the time, though
	guest    func(link.Carrier)
	attached atomic.Int32
}

func (b *backend) Change(_ context.Context, id string, do func(body) error) error {
	return do(body(id))
}

func (b *backend) Inspect(_ context.Context, id string) (body, error) { return body(id), nil }
func (b *backend) Settle(context.Context, body)                       {}
func (b *backend) End(context.Context, body) error                    { return nil }

func (b *backend) Attach(context.Context, body) (guestconn.Stream, error) {
	b.attached.Add(1)
	ours, theirs := net.Pipe()
	guest := b.guest
	if guest == nil {
		guest = b.silentGuest
	}
	go func() {
		_ = link.Serve(theirs, theirs, guest)
		_ = theirs.Close()
	}()
	return stream{ours}, nil
}

// silentGuest accepts streams, and says nothing over them.
func (b *backend) silentGuest(c link.Carrier) {
	mux, err := link.AcceptStreams(c, 0)
	if err != nil {
		return
	}
	defer mux.Close()
	for b.talks {
		one, err := mux.Open()
		if err != nil {
			return
		}
		_ = one.Close()
		select {
		case <-mux.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	<-mux.Done()
}

type stream struct{ io.ReadWriteCloser }

func (stream) Torn() bool        { return false }
func (stream) LastWords() string { return "" }

// TestLinkThatCarriesBytesIsAlive opens a sandbox whose guest does not come to answer a call. Its link stays where the
// guest sends something else meanwhile, and is made anew where it is silent.
func TestLinkThatCarriesBytesIsAlive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		talks bool
		links int32
	}{"busy": {true, 1}, "silent": {false, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backend{talks: c.talks}
			g := guestconn.New(b, "user", nil, slog.New(slog.DiscardHandler))
			defer g.Close()
			raw, err := b.Attach(t.Context(), "box")
			if err != nil {
				t.Fatal(err)
			}
			inside, err := g.Converse(t.Context(), raw, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Hold(t.Context(), "box", inside, raw); err != nil { // Greet takes the guest's welcome for a sign of life
				t.Fatal(err)
			}
			if _, err := g.Open(t.Context(), "box"); err != nil {
				t.Fatal(err)
			}
			if got := b.attached.Load(); got != c.links {
				t.Errorf("attached %d times, want %d", got, c.links)
			}
		})
	}
}

// TestCallsOverALinkThatHadEnded calls a guest that another worker has taken over, which shows only now: the call is made
// again over a new link. One that was under way at the takeover fails, and leaves the guest to the other worker.
func TestCallsOverALinkThatHadEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first func(link.Carrier)
		again bool
	}{"before the call": {endUnheard, true}, "during the call": {endHeard, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backend{}
			b.guest = c.first
			g := guestconn.New(b, "user", nil, slog.New(slog.DiscardHandler))
			defer g.Close()
			box, err := g.Open(t.Context(), "box")
			if err != nil {
				t.Fatal(err)
			}
			if c.again {
				b.guest = answer
			}
			before := b.attached.Load()
			err = box.Forget(t.Context(), "command")
			if again := b.attached.Load() > before; again != c.again || (err == nil) != c.again {
				t.Errorf("the call answers %v; made again: %v", err, again)
			}
		})
	}
}

// endUnheard ends with the first word of the worker.
func endUnheard(c link.Carrier) { _, _ = c.Read(make([]byte, 1)) }

// endHeard takes a call before it ends.
func endHeard(c link.Carrier) {
	mux, err := link.AcceptStreams(c, 0)
	if err != nil {
		return
	}
	defer mux.Close()
	_, _ = mux.Accept()
}

// answer answers calls with success.
func answer(c link.Carrier) {
	mux, err := link.AcceptStreams(c, 0)
	if err != nil {
		return
	}
	defer mux.Close()
	for {
		one, err := mux.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(one)
		_, _ = in.Discard(3) // the target of the stream
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(one, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}
}
