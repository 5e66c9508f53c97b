package jobs

import (
	"context"
)

// endedRuns bounds one transaction.
const endedRuns = 1000

// settleRuns writes down in the history of schedules how their jobs have ended.
func (s *Scheduler) settleRuns(ctx context.Context) error {
	n := endedRuns
	for n == endedRuns && ctx.Err() == nil {
		var err error
		if n, err = s.store.SettleRuns(ctx, endedRuns); err != nil {
			return err
		}
	}
	return nil
}
