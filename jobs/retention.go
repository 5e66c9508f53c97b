package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Retention says how long what has ended is kept; zero keeps it for ever.
type Retention struct {
	History time.Duration // sandboxes, builds and jobs that have ended, with their deliveries, runs of schedules, and events
	Output  time.Duration // what jobs have written and read
}

// pruneBatch bounds one statement, so that no lock is held for long.
const pruneBatch = 1000

// prune forgets at most limit of what is older than age, and says how many.
type prune func(ctx context.Context, age time.Duration, limit int) (int, error)

// retain forgets what is older than the operator wants to keep.
func (s *Scheduler) retain(ctx context.Context) error {
	return errors.Join( // in this order, for none is forgotten whose parts are known; but none keeps the others from it
		s.forget(ctx, "outputs", s.retention.Output, s.store.PruneOutputs),
		s.forget(ctx, "jobs", s.retention.History, s.store.PruneJobs),
		s.forget(ctx, "sandboxes", s.retention.History, s.store.PruneSandboxes),
		s.forget(ctx, "builds", s.retention.History, s.store.PruneBuilds),
		s.forget(ctx, "runs of schedules", s.retention.History, s.store.PruneRuns),
		s.forget(ctx, "events", s.retention.History, s.pruneEvents),
	)
}

// forget forgets everything of a sort that is older than age; zero keeps it for ever. Each part is a statement of its own, so
// that what a tick has no time for is the next one's.
func (s *Scheduler) forget(ctx context.Context, what string, age time.Duration, p prune) error {
	if age == 0 {
		return nil
	}
	total, err := inParts(ctx, pruneBatch, func(ctx context.Context, limit int) (int, error) { return p(ctx, age, limit) })
	if total > 0 {
		s.log.InfoContext(ctx, "forgotten after the time of retention", "what", what, "count", total)
	}
	if err != nil {
		return fmt.Errorf("forget %s: %w", what, err)
	}
	return nil
}

// pruneEvents looks at all events that are older than age, and says how many it has forgotten. What it has no time for is the
// next tick's.
func (s *Scheduler) pruneEvents(ctx context.Context, age time.Duration, limit int) (total int, err error) {
	for ctx.Err() == nil {
		var n int
		n, s.events, err = s.store.PruneEvents(ctx, s.events, age, limit)
		if total += n; err != nil || s.events == 0 {
			break
		}
	}
	return total, err
}
