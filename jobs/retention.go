package jobs

import (
	"context"
	"time"
)

// Retention says how long what has ended is kept; zero keeps it for ever.
type Retention struct {
	History time.Duration // sandboxes, builds and jobs that have ended, with their deliveries, and events
	Output  time.Duration // what jobs have written and read
}

// pruneBatch bounds one statement, so that no lock is held for long.
const pruneBatch = 1000

// retain forgets what is older than the operator wants to keep.
func (s *Scheduler) retain(ctx context.Context) error {
	for _, p := range []struct {
		what  string
		age   time.Duration
		prune func(context.Context, time.Duration, int) (int, error)
	}{
		{"outputs", s.retention.Output, s.store.PruneOutputs},
		{"jobs", s.retention.History, s.store.PruneJobs},
		{"sandboxes", s.retention.History, s.store.PruneSandboxes},
		{"builds", s.retention.History, s.store.PruneBuilds},
		{"events", s.retention.History, s.store.PruneEvents},
	} {
		if p.age == 0 {
			continue
		}
		total, n := 0, pruneBatch
		for n == pruneBatch && ctx.Err() == nil {
			var err error
			if n, err = p.prune(ctx, p.age, pruneBatch); err != nil {
				return err
			}
			total += n
		}
		if total > 0 {
			s.log.InfoContext(ctx, "forgotten after the time of retention", "what", p.what, "count", total)
		}
	}
	return nil
}
