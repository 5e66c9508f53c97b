package keymutex

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneHolderOfAKey(t *testing.T) {
	t.Parallel()
	var m Mutex
	var all sync.WaitGroup
	count := map[string]*int{"a": new(int), "b": new(int)} // the race detector and the sums see two holders of one key
	for i := range 200 {
		name := string("ab"[i%2])
		all.Go(func() {
			unlock, err := m.Lock(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			*count[name]++
		})
	}
	all.Wait()
	if *count["a"] != 100 || *count["b"] != 100 || len(m.keys) != 0 {
		t.Errorf("counted %d and %d, and %d keys are left", *count["a"], *count["b"], len(m.keys))
	}
}

func TestAKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	var m Mutex
	unlock, locked := m.TryLock("a")
	if !locked {
		t.Fatal("a free key is not locked")
	}
	if again, locked := m.TryLock("a"); locked {
		t.Error("a key is locked twice")
	} else {
		again()
	}
	if other, locked := m.TryLock("b"); !locked {
		t.Error("another key is held, too")
	} else {
		other()
	}
	why := errors.New("no longer")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := m.Lock(ctx, "a"); !errors.Is(err, why) {
		t.Errorf("waiting ended with %v", err)
	}
	next := make(chan struct{})
	go func() {
		defer close(next)
		if unlock, err := m.Lock(t.Context(), "a"); err == nil {
			unlock()
		}
	}()
	unlock()
	<-next
	if len(m.keys) != 0 {
		t.Errorf("%d keys are left", len(m.keys))
	}
}
