package scheduler

import (
	"context"
	"errors"

	"sandyard/models"
)

// usageBatch bounds one transaction.
const usageBatch = 5000

// foldUsage adds what was used to the hours that outlive everything else. What the database will not add is put aside
// and told of; it keeps nothing else from being added.
func (s *Scheduler) foldUsage(ctx context.Context) error {
	var errs []error
	for _, fold := range []func(context.Context, int) (bool, error){s.store.FoldFacts, s.store.FoldSpans} {
		var err error
		for more := true; more && ctx.Err() == nil && err == nil; {
			more, err = fold(ctx, usageBatch)
			if refused, ok := errors.AsType[*models.RefusedUsage](err); ok {
				s.log.ErrorContext(
					ctx,
					"usage rows not aggregated, see the table usage_refused",
					"rows",
					refused.Rows,
					"error",
					refused.Cause,
				)
				err = nil
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
