package loop

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestALifeEndsWhatItBounds(t *testing.T) {
	t.Parallel()
	l := NewLife()
	gone, leave := context.WithCancel(t.Context())
	leave()
	ctx, cancel := l.Context(gone)
	defer cancel()
	brief, cancelBrief := l.Within(gone, time.Hour)
	defer cancelBrief()
	if ctx.Err() != nil || brief.Err() != nil {
		t.Fatal("they end with the context that they were made from")
	}
	short, cancelShort := l.Within(gone, time.Nanosecond)
	defer cancelShort()
	if <-short.Done(); !errors.Is(short.Err(), context.DeadlineExceeded) {
		t.Errorf("the limit ends it as %v", short.Err())
	}
	l.End()
	<-ctx.Done()
	<-brief.Done()
	<-l.Done()
}

func TestEveryTicksUntilTheEnd(t *testing.T) {
	t.Parallel()
	l, now, ticks := NewLife(), make(chan struct{}), 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Every(time.Hour, now, func() { ticks++ })
	}()
	now <- struct{}{}
	now <- struct{}{}
	l.End()
	if <-ended; ticks != 2 {
		t.Errorf("%d ticks, want 2", ticks)
	}
	again, clock := NewLife(), 0
	again.Every(time.Millisecond, nil, func() {
		if clock++; clock == 3 {
			again.End()
		}
	})
	if clock < 3 {
		t.Errorf("%d ticks of the clock", clock)
	}
}
