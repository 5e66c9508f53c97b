package execs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAListenerThatNeverHeardOfTheStart: nobody waits for who was gone before the command's output came.
func TestAListenerThatNeverHeardOfTheStart(t *testing.T) {
	t.Parallel()
	e := newExec(Command{}, &atomic.Int64{})
	gone := errors.New("gone")
	emit := func(Chunk) error { return nil }
	if err := e.Follow(t.Context(), [2]int64{}, func() error { return gone }, emit); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range listenerBuffer + 1 {
			e.add(Stdout, []byte("output"))
		}
	}()
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("the command waits for it")
	}
}

// TestListenersOfTheEnd: what comes when nobody is waited for any more stays in order, comes once and to all, and the
// command's place is given back by the last who has it.
func TestListenersOfTheEnd(t *testing.T) {
	t.Parallel()
	a := newAudience()
	first, second := a.join(), a.join()
	for i := range listenerBuffer {
		a.send(Chunk{Data: []byte{byte(i)}})
	}
	places := 0
	a.hasten(3, func() { places++ })
	for i := range 4 {
		a.send(Chunk{Data: []byte{byte(listenerBuffer + i)}})
	}
	close(a.over)
	for _, l := range []*listener{first, second} {
		if places != 0 {
			t.Error("the place is given back while somebody has yet to read")
		}
		var got []byte
		err := a.listen(context.Background(), l, func(c Chunk) error {
			got = append(got, c.Data...)
			return nil
		})
		a.leave(l)
		for i, b := range got {
			if int(b) != i || err != nil {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		if len(got) != listenerBuffer+3 {
			t.Errorf("got %d chunks", len(got))
		}
	}
	if places != 1 {
		t.Errorf("the place is given back %d times", places)
	}
}
