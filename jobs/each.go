package jobs

import (
	"context"
	"errors"
	"fmt"

	"sandyard/models/pg"
)

// toldFailures is how many errors of one tick are told; the others are likely the same.
const toldFailures = 3

// each does something for every item. One that fails keeps no other from its turn, but what they all need does when ready
// says that it is away.
func each[T any](ctx context.Context, ready func(context.Context) error, items []T, do func(T) error) error {
	var errs []error
	n := 0
	for _, x := range items {
		err := do(x)
		if err == nil {
			continue
		}
		if n++; n <= toldFailures {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || pg.IsUnavailable(err) && ready(ctx) != nil {
			break
		}
	}
	if n > toldFailures {
		errs = append(errs, fmt.Errorf("%d in all", n))
	}
	return errors.Join(errs...)
}

// inParts repeats what does at most limit at once until it finds less than that, and returns how many these were.
func inParts(ctx context.Context, limit int, do func(context.Context, int) (int, error)) (total int, err error) {
	for n := limit; n == limit && ctx.Err() == nil && err == nil; total += n {
		n, err = do(ctx, limit)
	}
	return total, err
}
