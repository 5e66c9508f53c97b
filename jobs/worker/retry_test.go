package worker

import (
	"testing"
	"time"
)

// TestRetryPauseStaysASecond: the pause stays a second for ever. Doubling without a bound overflows to no pause after half an hour of failures.
func TestRetryPauseStaysASecond(t *testing.T) {
	t.Parallel()
	var p retryPause
	want := 50 * time.Millisecond
	for try := range 200 {
		if got := p.next(); got != want {
			t.Fatalf("pause %d is %v, want %v", try, got, want)
		}
		want = min(2*want, time.Second)
	}
}
