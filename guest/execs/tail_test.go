package execs

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
)

// TestAReaderWhoJoinsInTheMiddleReadsOn: what the command writes before it waits for the reader cuts off nothing that he
// has yet to get.
func TestAReaderWhoJoinsInTheMiddleReadsOn(t *testing.T) {
	t.Parallel()
	room := &atomic.Int64{}
	room.Store(1 << 30)
	e := newExec(Command{Name: "a", Background: true}, room)
	line := bytes.Repeat([]byte("012345\r\n"), readSize/8)
	for range 2 * e.spools[Stdout].keep / readSize {
		e.add(Stdout, line)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var at int64
	var got bytes.Buffer
	begin := func(from int64) error {
		at = from
		for range joinLag / readSize { // the pump was about to write, and an input takes in the rest
			e.add(Stdout, line)
		}
		return nil
	}
	total := e.spools[Stdout].total + joinLag
	emit := func(b []byte) error {
		if got.Write(b); at+int64(got.Len()) == total {
			stop()
		}
		return nil
	}
	err := e.Tail(ctx, 0, begin, emit, func(context.Context) bool { return false })
	if at+int64(got.Len()) != total || !bytes.HasPrefix(got.Bytes(), []byte("012345\r\n")) {
		t.Errorf("read %d bytes from %d on of %d, beginning %q; %v", got.Len(), at, total, got.Bytes()[:min(16, got.Len())], err)
	}
}

// TestAReaderOfAnEndGetsAllThatIsKept.
func TestAReaderOfAnEndGetsAllThatIsKept(t *testing.T) {
	t.Parallel()
	room := &atomic.Int64{}
	room.Store(1 << 30)
	e := newExec(Command{Name: "a", Background: true}, room)
	keep := e.spools[Stdout].keep
	e.add(Stdout, make([]byte, keep/2))
	e.add(Stdout, make([]byte, keep))
	close(e.done)
	got := 0
	err := e.Tail(t.Context(), 0, func(at int64) error {
		if at != keep/2 {
			t.Errorf("it begins at %d of %d", at, keep+keep/2)
		}
		return nil
	}, func(b []byte) error { got += len(b); return nil }, func(context.Context) bool { return false })
	if err != nil || int64(got) != keep {
		t.Errorf("%d bytes of %d, %v", got, keep, err)
	}
}
