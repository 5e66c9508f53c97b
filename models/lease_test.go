package models_test

import (
	"testing"
	"time"
)

func TestALeaseHasOneHolder(t *testing.T) {
	t.Parallel()
	s := open(t, 10)
	take := func(holder string, lease time.Duration, want bool) {
		t.Helper()
		got, err := s.TakeLease(t.Context(), "work", holder, lease)
		if err != nil || got != want {
			t.Errorf("%s gets the lease: %v, %v, want %v", holder, got, err, want)
		}
	}
	take("a", time.Hour, true)
	take("b", time.Hour, false)
	take("a", time.Hour, true) // again
	if err := s.DropLease(t.Context(), "work", "b"); err != nil {
		t.Error(err)
	}
	take("b", time.Hour, false) // what b has dropped was not b's
	take("a", -time.Second, true)
	take("b", time.Hour, true) // a's has ended
	if err := s.DropLease(t.Context(), "work", "b"); err != nil {
		t.Error(err)
	}
	take("a", time.Hour, true)
}
