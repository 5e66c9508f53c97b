package jobs

import (
	"math/rand/v2"
	"time"

	"sandyard/models"
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
	return 6
}

// backoff is how long to wait before attempt n+1: 100 ms doubling to 30 s, spread by a quarter.
func backoff(n int) time.Duration {
	d := min(100*time.Millisecond<<min(n-1, 10), 30*time.Second)
	return d - d/8 + rand.N(d/4)
}
