package link

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/iotest"
)

// recorded keeps the sizes of what is written at once.
type recorded struct {
	io.ReadWriteCloser

	mu    sync.Mutex
	sizes []int
}

func (r *recorded) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.sizes = append(r.sizes, len(p))
	r.mu.Unlock()
	return r.ReadWriteCloser.Write(p)
}

func (r *recorded) count(size int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sizes {
		if s == size {
			n++
		}
	}
	return n
}

// echoStreams is a guest that sends back what comes over each stream.
func echoStreams(c Carrier) {
	session, err := AcceptStreams(c, 0)
	if err != nil {
		return
	}
	defer session.Close()
	var echoes sync.WaitGroup
	defer echoes.Wait()
	for {
		stream, err := session.Accept()
		if err != nil {
			return
		}
		echoes.Go(func() {
			_, _ = io.Copy(stream, stream)
			_ = stream.CloseWrite()
			_ = stream.Close()
		})
	}
}

func TestWhatIsCopiedIntoAStreamArrives(t *testing.T) {
	t.Parallel()
	wire := &recorded{ReadWriteCloser: serve(t, echoStreams)}
	session, err := OpenStreams(dial(t, wire), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	for _, size := range []int{0, 1, 1000, smallPiece - 1, smallPiece, smallPiece + 1, largePiece, 3 << 20} {
		message := make([]byte, size)
		for i := range message {
			message[i] = byte(i >> (i % 7))
		}
		for name, r := range map[string]io.Reader{
			"plain": struct{ io.Reader }{bytes.NewReader(message)}, "limited": io.LimitReader(bytes.NewReader(message), int64(size)),
			"in halves": iotest.HalfReader(bytes.NewReader(message)), "data with its end": iotest.DataErrReader(bytes.NewReader(message)),
		} {
			if got := through(t, session, r); !bytes.Equal(got, message) {
				t.Errorf("%d bytes, %s: %d came back, changed", size, name, len(got))
			}
		}
	}
	if n := wire.count(64 << 10); n < 3*(3<<20)/(64<<10)/2 {
		t.Errorf("only %d writes filled a buffer of 64 KiB", n)
	}
}

// through copies r into a stream and returns what comes back.
func through(t *testing.T, session *Streams, r io.Reader) []byte {
	t.Helper()
	stream, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		if _, err := io.Copy(stream, r); err != nil {
			t.Error(err)
		}
		if err := stream.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	defer stream.Close()
	got, err := io.ReadAll(stream)
	if err != nil {
		t.Error(err)
	}
	return got
}

func TestACopyTellsWhatItsSourceSaid(t *testing.T) {
	t.Parallel()
	session, err := OpenStreams(dial(t, serve(t, echoStreams)), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	stream, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the source broke")
	n, err := io.Copy(stream, io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(broken)))
	if n != 10 || !errors.Is(err, broken) {
		t.Errorf("%d bytes and %v", n, err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(stream, bytes.NewReader(make([]byte, 10))); err == nil {
		t.Error("a closed stream took more")
	}
}
