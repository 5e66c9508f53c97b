package jobs

import (
	"math/rand/v2"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// timeoutOf is how long a kind may run, apart from its wait in the queue.
func timeoutOf(args Args) (time.Duration, error) {
	switch a := args.(type) {
	case *Exec:
		if d, err := a.timeout(); err != nil || !a.Background {
			return d, err
		}
		return launchTimeout, nil
	case *ExecWait:
		return a.timeout()
	case *Code:
		return a.timeout()
	case *CreateContext:
		return launchTimeout + fileTimeout, nil // an interpreter gets a minute to start
	case *Create:
		return createTimeout + time.Duration(a.ReadySeconds*float64(time.Second)), nil
	case *Build:
		return a.timeout(), nil
	case *Delete:
		return deleteTimeout, nil
	default:
		return fileTimeout, nil
	}
}

// maxAttempts is how often the platform tries a kind on errors that may pass. Every kind is safe to try again: a create
// adopts, a file call overwrites, an exec or a cell attaches to what was started, and an edit is known by its job.
func maxAttempts(args Args) int {
	if args.Kind() == models.KindDelete {
		return 20 // about eight minutes; then the scheduler begins again
	}
	return 10 // most of a minute: an engine that restarts is back by then
}

// maxFaults is how often one is tried that fails although its provider is there and has room: about three seconds.
const maxFaults = 6

// attemptsFor is how many attempts a job may have on such an error.
func attemptsFor(j models.Job, err *providers.Error) int {
	switch {
	case j.Kind == models.KindDelete, err.Class == providers.Unavailable, err.Class == providers.Capacity, err.Class == providers.DiskFull:
		return j.MaxAttempts
	}
	return min(j.MaxAttempts, maxFaults)
}

// backoff is how long to wait before attempt n+1: 100 ms doubling to 30 s, spread by a quarter.
func backoff(n int) time.Duration {
	d := min(100*time.Millisecond<<min(n-1, 10), 30*time.Second)
	return d - d/8 + rand.N(d/4)
}
