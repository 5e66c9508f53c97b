// Package loop is what work that is done again and again has in common: one process of many that does it, and items of
// which one that fails keeps no other from its turn.
package loop

import (
	"context"
	"errors"
	"fmt"

	"sandyard/models/pg"
)

// ToldFailures is how many errors of one tick are told; the others are likely the same.
const ToldFailures = 3

// Each does something for every item. One that fails keeps no other from its turn, but what they all need does when
// ready says that it is away.
func Each[T any](ctx context.Context, ready func(context.Context) error, items []T, do func(T) error) error {
	var errs []error
	n := 0
	for _, x := range items {
		err := do(x)
		if err == nil {
			continue
		}
		if n++; n <= ToldFailures {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || pg.IsUnavailable(err) && ready(ctx) != nil {
			break
		}
	}
	if n > ToldFailures {
		errs = append(errs, fmt.Errorf("%d in all", n))
	}
	return errors.Join(errs...)
}

// InParts repeats what does at most limit at once until it finds less than that, and returns how many these were.
func InParts(ctx context.Context, limit int, do func(context.Context, int) (int, error)) (total int, err error) {
	for n := limit; n == limit && ctx.Err() == nil && err == nil; total += n {
		n, err = do(ctx, limit)
	}
	return total, err
}
