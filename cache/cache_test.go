package cache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sandyard/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEntriesEnd at their time, also those that are read all the while; setting one again begins anew.
func TestEntriesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cache.New[string, int](10, time.Minute)
		c.Set("a", 1, cache.Life)
		for range 59 {
			<-time.After(time.Second)
			if got := c.Get("a"); got == nil || got.Value() != 1 {
				t.Fatalf("within its life: %v", got)
			}
		}
		c.Set("b", 2, cache.Life)
		<-time.After(2 * time.Second)
		if got := c.Get("a"); got != nil {
			t.Errorf("behind its end: %v", got.Value())
		}
		if c.Get("b") == nil {
			t.Error("the other one ended with it")
		}
		c.Set("a", 3, cache.Life)
		<-time.After(59 * time.Second)
		if got := c.Get("a"); got == nil || got.Value() != 3 {
			t.Errorf("set again: %v", got)
		}
		forever := cache.New[string, int](10, 0)
		forever.Set("a", 1, cache.Life)
		<-time.After(1000 * time.Hour)
		if forever.Get("a") == nil {
			t.Error("an entry without an end has ended")
		}
	})
}

// TestSizeIsKept: what was used longest ago goes, and no more than that.
func TestSizeIsKept(t *testing.T) {
	t.Parallel()
	c := cache.New[int, int](3, time.Hour)
	for n := range 1000 {
		c.Set(n, n, cache.Life)
		c.Get(0)
	}
	for n, want := range map[int]bool{0: true, 997: false, 998: true, 999: true} {
		if got := c.Get(n) != nil; got != want {
			t.Errorf("%d is known: %v, want %v", n, got, want)
		}
	}
	if c.Len() != 3 {
		t.Errorf("%d entries are held", c.Len())
	}
}
