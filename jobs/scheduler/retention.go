package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sandyard/jobs/loop"
)

// sampleAge is how long a sample of a sandbox's use is kept.
const sampleAge = 24 * time.Hour

const (
	// keptRuns is how much history of a schedule is kept at most.
	keptRuns = 200
	// schedulesAtOnce is how many histories one statement looks at.
	schedulesAtOnce = 500
)

// keepHouse forgets what nobody needs any more.
func (s *Scheduler) keepHouse(ctx context.Context) error {
	const (
		keyAge    = 24 * time.Hour
		usersAge  = 7 * 24 * time.Hour
		ticketAge = time.Hour // as long as a used ticket is told apart from none
	)
	return errors.Join( // none keeps the others from their work
		s.forgetNodes(ctx),
		s.forgetRuns(ctx),
		s.forget(ctx, "grants of ports", keyAge, s.store.PruneGrants),
		s.forget(ctx, "tickets", ticketAge, s.store.PruneTickets),
		s.forget(ctx, "leases", keyAge, s.store.PruneLeases),
		s.forget(
			ctx,
			"idempotency keys",
			keyAge,
			s.store.PruneKeys,
		),
		s.forget(ctx, "samples", sampleAge, s.store.PruneSamples),
		s.forget(ctx, "days of users", usersAge, s.store.PruneUsageUsers),
	)
}

// forgetNodes forgets workers that died, with their queues, to which nothing else leads: one whose queues are left for
// now is itself left.
func (s *Scheduler) forgetNodes(ctx context.Context) error {
	const nodeAge = time.Minute
	at, counts := s.silence()
	if !counts {
		return nil
	}
	nodes, err := s.store.DeadNodes(ctx, at, nodeAge)
	if err != nil {
		return err
	}
	var clean []string
	err = loop.Each(ctx, s.queue.Ready, nodes, func(node string) error {
		if err := s.queue.ForgetNode(ctx, node); err != nil {
			return fmt.Errorf("queues of node %s: %w", node, err)
		}
		clean = append(clean, node)
		return nil
	})
	return errors.Join(err, s.store.PruneNodes(ctx, clean, at, nodeAge))
}

// forgetRuns forgets what schedules have more than keptRuns of.
func (s *Scheduler) forgetRuns(ctx context.Context) error {
	var errs []error
	for last := ""; ctx.Err() == nil; {
		ids, err := s.store.ScheduleIDs(ctx, last, schedulesAtOnce)
		if err != nil || len(ids) == 0 {
			return errors.Join(append(errs, err)...)
		}
		_, err = loop.InParts(ctx, pruneBatch, func(ctx context.Context, limit int) (int, error) {
			return s.store.PruneHistories(ctx, ids, keptRuns, limit)
		})
		errs = append(errs, err)
		last = ids[len(ids)-1]
	}
	return errors.Join(errs...)
}

// Retention says how long what has ended is kept; zero keeps it for ever.
type Retention struct {
	// Sandboxes, builds and jobs that have ended, with their deliveries, runs of schedules, and events.
	History time.Duration
	Output  time.Duration // what jobs have written and read
	Audit   time.Duration // who changed what
}

// pruneBatch bounds one statement, so that no lock is held for long.
const pruneBatch = 1000

// prune forgets at most limit of what is older than age, and says how many.
type prune func(ctx context.Context, age time.Duration, limit int) (int, error)

// retain forgets what is older than the operator wants to keep, in this order, for none is forgotten whose parts are
// known. Each sort has an equal share of the time that is left, so that much of one sort keeps no other from its turn.
func (s *Scheduler) retain(ctx context.Context) error {
	sorts := []struct {
		what  string
		age   time.Duration
		prune prune
	}{
		{"outputs", s.retention.Output, s.store.PruneOutputs},
		{"jobs", s.retention.History, s.store.PruneJobs},
		{"sandboxes", s.retention.History, s.store.PruneSandboxes},
		{"builds", s.retention.History, s.store.PruneBuilds},
		{"runs of schedules", s.retention.History, s.store.PruneRuns},
		{"events", s.retention.History, s.pruneEvents},
		{"entries of the audit log", s.retention.Audit, s.store.PruneAudit},
		{"security events", s.retention.Audit, s.store.PruneSecurityEvents},
	}
	end, limited := ctx.Deadline()
	var errs []error
	for i, sort := range sorts {
		short, cancel := ctx, context.CancelFunc(func() {})
		if limited {
			left := time.Until(end) // this machine's own clock set the deadline
			short, cancel = context.WithTimeout(ctx, left/time.Duration(len(sorts)-i))
		}
		errs = append(errs, s.forgetWithin(ctx, short, sort.what, sort.age, sort.prune))
		cancel()
	}
	return errors.Join(errs...)
}

// forget forgets everything of a sort that is older than age; zero keeps it for ever. Each part is a statement of its
// own, so that what a tick has no time for is the next one's.
func (s *Scheduler) forget(ctx context.Context, what string, age time.Duration, p prune) error {
	return s.forgetWithin(ctx, ctx, what, age, p)
}

// forgetWithin is forget that begins no part after share has ended; the last one is not broken off.
func (s *Scheduler) forgetWithin(ctx, share context.Context, what string, age time.Duration, p prune) error {
	if age == 0 {
		return nil
	}
	total, err := loop.InParts(
		share,
		pruneBatch,
		func(context.Context, int) (int, error) { return p(ctx, age, pruneBatch) },
	)
	if total > 0 {
		s.log.InfoContext(ctx, "expired rows deleted", "what", what, "count", total)
	}
	if err != nil {
		return fmt.Errorf("delete expired %s: %w", what, err)
	}
	return nil
}

// pruneEvents looks at all events that are older than age, and says how many it has forgotten. What it has no time for
// is the next tick's.
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
