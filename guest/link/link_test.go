package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// duplex is one end of a stream that, unlike net.Pipe, buffers like a real one.
type duplex struct {
	io.Reader
	io.Writer

	close func()
}

func (d duplex) Close() error {
	d.close()
	return nil
}

// stream returns both ends; closing either ends both.
func stream(t *testing.T) (worker, guest duplex) {
	t.Helper()
	toGuest, fromWorker, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toWorker, fromGuest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	closeAll := func() {
		for _, f := range []*os.File{toGuest, fromWorker, toWorker, fromGuest} {
			_ = f.Close()
		}
	}
	t.Cleanup(closeAll)
	return duplex{toWorker, fromWorker, closeAll}, duplex{toGuest, fromGuest, closeAll}
}

// serve runs a guest until the test ends and returns the worker's end of its stream.
func serve(t *testing.T, handle func(Carrier)) duplex {
	t.Helper()
	worker, guest := stream(t)
	var served sync.WaitGroup
	served.Go(func() {
		if err := Serve(guest, guest, handle); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		_ = worker.Close()
		served.Wait()
	})
	return worker
}

func echo(c Carrier) { _, _ = io.Copy(c, c) }

// shared is a stream that stays open when a conversation over it is closed, as others are attached to it too.
func shared(d duplex) duplex {
	d.close = func() {}
	return d
}

func dial(t *testing.T, rw io.ReadWriteCloser) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, rw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func exchange(t *testing.T, c io.ReadWriter, message []byte) {
	t.Helper()
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		if _, err := c.Write(message); err != nil {
			t.Error(err)
		}
	})
	got := make([]byte, len(message))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, message) {
		t.Fatal("the message came back changed")
	}
}

func TestBytesArriveInOrder(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, echo))
	for _, n := range []int{1, 100, MaxPayload, MaxPayload + 1, 1 << 20} {
		message := make([]byte, n)
		for i := range message {
			message[i] = byte(i >> (i % 3))
		}
		exchange(t, c, message)
	}
}

func TestGarbageCostsTheConversationNotTheLink(t *testing.T) {
	t.Parallel()
	whole := appendFrame(nil, frame{kind: data, epoch: 1, seq: 1, payload: bytes.Repeat([]byte("x"), 40_000)})
	for name, garbage := range map[string][]byte{
		"nothing":          nil,
		"noise":            bytes.Repeat([]byte("noise"), 1000),
		"magic only":       whole[:4],
		"half a header":    whole[:11],
		"torn payload":     whole[:30_000],
		"a byte missing":   append(bytes.Clone(whole[:500]), whole[501:]...),
		"frame in a frame": append(bytes.Clone(whole[:100]), whole...),
		"frame missing":    appendFrame(nil, frame{kind: data, epoch: 1, seq: 9, payload: []byte("x")}),
		"old epoch":        appendFrame(nil, frame{kind: data, epoch: 0, seq: 9, payload: []byte("x")}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := serve(t, echo)
			exchange(t, dial(t, shared(raw)), []byte("fine"))
			if _, err := raw.Write(garbage); err != nil {
				t.Fatal(err)
			}
			c := dial(t, shared(raw))
			if c.Epoch() < 2 {
				t.Errorf("epoch %d", c.Epoch())
			}
			exchange(t, c, []byte("fine again"))
		})
	}
}

// TestARepeatedHelloTakesNoConversationOver: it may come when its worker has long been welcomed, and superseded since.
func TestARepeatedHelloTakesNoConversationOver(t *testing.T) {
	t.Parallel()
	raw := serve(t, echo)
	first := dial(t, shared(raw))
	again := appendFrame(nil, frame{kind: hello, payload: first.nonce})
	if _, err := raw.Write(again); err != nil {
		t.Fatal(err)
	}
	exchange(t, first, []byte("the current one's hello is only answered again"))
	second := dial(t, shared(raw))
	if _, err := raw.Write(again); err != nil {
		t.Fatal(err)
	}
	exchange(t, second, []byte("the second one goes on"))
	if third := dial(t, shared(raw)); third.Epoch() != 3 {
		t.Errorf("the third conversation is of epoch %d", third.Epoch())
	}
}

func TestTheGuestEndsATornConversation(t *testing.T) {
	t.Parallel()
	for name, torn := range map[string][]byte{
		"noise": []byte("these bytes belong to no frame, and there are enough of them"),
		"gap":   appendFrame(nil, frame{kind: data, epoch: 1, seq: 1, payload: []byte("the second without the first")}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			raw := serve(t, func(c Carrier) {
				_, err := io.Copy(io.Discard, c)
				ended <- err
			})
			c := dial(t, raw)
			if _, err := raw.Write(torn); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, ErrTorn) {
					t.Errorf("the guest's handler got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the conversation goes on")
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrEnded) {
				t.Errorf("the worker got %v", err)
			}
		})
	}
}

func TestWhatAWorkerMakesOfAHostileGuest(t *testing.T) {
	t.Parallel()
	own := func(f frame) []byte {
		f.epoch += 5
		return appendFrame(nil, f)
	}
	for name, c := range map[string]struct {
		says []byte
		want error
	}{
		"noise":         {bytes.Repeat([]byte("noise"), 100), ErrTorn},
		"newer welcome": {own(frame{kind: welcome, epoch: 1, payload: []byte("another")}), ErrSuperseded},
		"newer data":    {own(frame{kind: data, epoch: 3, payload: []byte("x")}), ErrSuperseded},
		"reset":         {own(frame{kind: reset}), ErrEnded},
		"gap":           {own(frame{kind: data, seq: 1, payload: []byte("x")}), ErrTorn},
		"twice":         {append(own(frame{kind: data}), own(frame{kind: data})...), ErrTorn},
		"unknown kind, old epochs, then a reset": {
			append(append(own(frame{kind: 99}), appendFrame(nil, frame{kind: data, epoch: 4, payload: []byte("x")})...), own(frame{kind: reset})...),
			ErrEnded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker, guest := stream(t)
			go func() {
				f, err := newFrameReader(guest).next()
				if err != nil || f.kind != hello {
					t.Errorf("the guest read %v, %v", f.kind, err)
				}
				_, _ = guest.Write(append(own(frame{kind: welcome, payload: f.payload}), c.says...))
			}()
			conn := dial(t, worker)
			n, err := conn.Read(make([]byte, 10))
			if n != 0 || !errors.Is(err, c.want) {
				t.Errorf("read %d bytes and %v, want %v", n, err, c.want)
			}
			if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, c.want) {
				t.Errorf("the next read says %v", err)
			}
		})
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	worker, guest := stream(t)
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, guest) })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, worker); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	drained.Wait()
}
