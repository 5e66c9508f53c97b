package models_test

import (
	"testing"
	"time"

	"sandyard/models"
)

func TestALeaseHasOneHolder(t *testing.T) {
	t.Parallel()
	s := open(t, 10)
	take := func(holder string, lease time.Duration, want bool) {
		t.Helper()
		got, err := s.TakeLease(t.Context(), "work", holder, lease)
		if err != nil || got.Ours != want {
			t.Errorf("%s gets the lease: %+v, %v, want %v", holder, got, err, want)
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

// TestALeaseKnowsOfGaps: whoever renews it, it has been there since the last time at which nobody did, or at which the
// database's clock was set.
func TestALeaseKnowsOfGaps(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	take := func(holder string) models.Lease {
		t.Helper()
		got, err := s.TakeLease(t.Context(), "work", holder, -time.Millisecond)
		must(t, err)
		if !got.Ours {
			t.Fatalf("%s does not get the lease", holder)
		}
		return got
	}
	since := func() time.Time {
		t.Helper()
		var at time.Time
		must(t, db.QueryRowContext(t.Context(), "UPDATE leases SET steady_since = steady_since - interval '1 hour', beat_at = now() RETURNING steady_since").Scan(&at))
		return at
	}
	if first := take("a"); !first.SteadySince.Equal(first.Now) {
		t.Errorf("a lease that nobody had: %+v", first)
	}
	for _, holder := range []string{"a", "b"} {
		if long := since(); !take(holder).SteadySince.Equal(long) {
			t.Errorf("when %s renews it there is a gap", holder)
		}
	}
	since()
	must(t, s.DropLease(t.Context(), "work", "b"))
	if got := take("a"); got.SteadySince.Equal(got.Now) {
		t.Error("that its holder gives it back is a gap")
	}
	for name, by := range map[string]string{"away": "- interval '4 s'", "set back": "+ interval '1 minute'"} {
		since()
		exec(t, db, "UPDATE leases SET beat_at = beat_at "+by)
		if got := take("a"); !got.SteadySince.Equal(got.Now) {
			t.Errorf("%s: there was no gap: %+v", name, got)
		}
	}
	_, err := s.Register(t.Context(), models.Node{ID: "n"}, 7*time.Second)
	must(t, err)
	if got := take("a"); got.LongestMS != 7000 {
		t.Errorf("the longest lease is %d ms", got.LongestMS)
	}
	exec(t, db, "UPDATE leases SET lease_until = now() - interval '2 hours'")
	if n, err := s.PruneLeases(t.Context(), time.Hour, 10); n != 1 || err != nil {
		t.Errorf("%d leases are forgotten, %v", n, err)
	}
}
