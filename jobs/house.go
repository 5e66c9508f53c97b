package jobs

import (
	"context"
	"errors"
	"time"
)

// keptRuns is how much history of a schedule is kept at most.
const keptRuns = 200

// keepHouse forgets what nobody needs any more.
func (s *Scheduler) keepHouse(ctx context.Context) error {
	const nodeAge, keyAge = time.Minute, 24 * time.Hour
	nodes, err := s.store.DeadNodes(ctx, nodeAge)
	if err != nil {
		return err
	}
	for _, n := range nodes { // first: nothing else leads to its queues
		if err := s.queue.forgetNode(ctx, n); err != nil {
			return err
		}
	}
	return errors.Join( // none keeps the others from their work
		s.store.PruneNodes(ctx, nodes, nodeAge), s.store.PruneGrants(ctx, keyAge), s.store.PruneRuns(ctx, s.retention.History, keptRuns),
		s.store.PruneTickets(ctx, keyAge), s.store.PruneKeys(ctx, keyAge))
}
