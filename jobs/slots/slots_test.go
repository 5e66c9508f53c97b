package slots

import (
	"context"
	"errors"
	"testing"
)

// takes is a tenant's attempt that has a slot, or waits for one.
type takes struct {
	t    *testing.T
	lane *Lane
	w    *waiter
}

func (x takes) started() bool {
	select {
	case <-x.w.ready:
		return x.w.slot != nil
	default:
		return false
	}
}

func (x takes) must(started bool, what string) takes {
	x.t.Helper()
	if x.started() != started {
		x.t.Fatalf("%s: started %v, want %v", what, x.started(), started)
	}
	return x
}

func line(t *testing.T, lane *Lane, tenant string) takes {
	t.Helper()
	return takes{t, lane, lane.line(tenant)}
}

func TestATenantAloneHasAllSlots(t *testing.T) {
	t.Parallel()
	lane := New(3, 100)
	for range 3 {
		line(t, lane, "a").must(true, "a slot that nobody else wants")
	}
	line(t, lane, "a").must(false, "a fourth start in three slots")
}

// TestSlotsGoToWhoHasFewest: a tenant with a long line never delays another's first start by more than one end.
func TestSlotsGoToWhoHasFewest(t *testing.T) {
	t.Parallel()
	lane := New(2, 100)
	var flood []takes
	for range 10 {
		flood = append(flood, line(t, lane, "flood"))
	}
	one, two := line(t, lane, "one"), line(t, lane, "two")
	flood[0].w.slot.End()
	one.must(true, "the first slot that is free")
	flood[1].w.slot.Rest()
	two.must(true, "the next one")
	flood[2].must(false, "the flood's third, while others have one slot each")
	one.w.slot.End()
	two.w.slot.End()
	flood[2].must(true, "the flood's third, while nobody else waits")
	flood[3].must(true, "the flood's fourth")
	flood[4].must(false, "the flood's fifth in two slots")
}

func TestWhatRestsIsBoundedByTenant(t *testing.T) {
	t.Parallel()
	lane := New(1, 3)
	var resting []takes
	for range 3 {
		x := line(t, lane, "a").must(true, "a start below the bound")
		x.w.slot.Rest()
		resting = append(resting, x)
	}
	fourth := line(t, lane, "a").must(false, "a start beyond the bound")
	line(t, lane, "b").must(true, "another tenant's").w.slot.End()
	resting[0].w.slot.End()
	resting[0].w.slot.End() // counts once
	fourth.must(true, "the fourth, after an end")
}

func TestAClosedLaneEndsWithItsLastAttempt(t *testing.T) {
	t.Parallel()
	lane := New(1, 3)
	first := line(t, lane, "a")
	waiting := line(t, lane, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waited := false
	if _, err := lane.Take(ctx, "c", func() { waited = true }); !errors.Is(err, context.Canceled) || !waited {
		t.Errorf("a wait that was given up: %v, told: %v", err, waited)
	}
	idle := lane.Close()
	if waiting.must(false, "what waits at the close"); waiting.w.slot != nil {
		t.Error("what waited was given a slot")
	}
	<-waiting.w.ready
	if _, err := lane.Take(t.Context(), "a", func() { t.Error("it waits in a closed lane") }); !errors.Is(err, errClosed) {
		t.Errorf("a start after the close: %v", err)
	}
	first.w.slot.Rest()
	select {
	case <-idle:
		t.Error("the lane is idle while an attempt rests")
	default:
	}
	first.w.slot.End()
	<-idle
	<-lane.Close()
}
