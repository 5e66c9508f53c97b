package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sandyard/jobs/loop"
)

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
