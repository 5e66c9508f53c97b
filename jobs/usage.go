package jobs

import "context"

// usageBatch bounds one transaction.
const usageBatch = 5000

// foldUsage adds what was used to the hours that outlive everything else.
func (s *Scheduler) foldUsage(ctx context.Context) error {
	for _, fold := range []func(context.Context, int) (bool, error){s.store.FoldFacts, s.store.FoldSpans} {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = fold(ctx, usageBatch); err != nil {
				return err
			}
		}
	}
	return nil
}
