package testenv

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// patience is how long a test waits for a state on a machine that is not very busy.
const patience = time.Minute

// Patience is how long a test waits for something that must come: a minute, times the factor TEST_PATIENCE of the
// environment, such as 3 on a very slow machine. Only a test that fails waits for so long.
func Patience() time.Duration {
	factor, err := strconv.ParseFloat(os.Getenv("TEST_PATIENCE"), 64)
	if err != nil || factor < 1 {
		return patience
	}
	return time.Duration(factor * float64(patience))
}

// Eventually waits until ok answers true, and fails the test when that is not within Patience. It says what was waited for.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience())
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", Patience(), what)
		}
	}
}
