package jobs

import (
	"context"
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
	if err := s.store.PruneNodes(ctx, nodes, nodeAge); err != nil {
		return err
	}
	if err := s.store.PruneGrants(ctx, keyAge); err != nil {
		return err
	}
	if err := s.store.PruneRuns(ctx, s.retention.History, keptRuns); err != nil {
		return err
	}
	if err := s.store.PruneTickets(ctx, keyAge); err != nil {
		return err
	}
	return s.store.PruneKeys(ctx, keyAge)
}
