package jobs

import (
	"context"
	"errors"
)

// usageBatch bounds one transaction.
const usageBatch = 5000

// foldUsage adds what was used to the hours that outlive everything else.
func (s *Scheduler) foldUsage(ctx context.Context) error {
	var errs []error
	for _, fold := range []func(context.Context, int) (bool, error){s.store.FoldFacts, s.store.FoldSpans} {
		var err error
		for more := true; more && ctx.Err() == nil && err == nil; {
			more, err = fold(ctx, usageBatch)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
