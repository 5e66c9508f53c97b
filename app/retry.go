package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sandyard/models/pg"
)

const (
	// patience is how long a starting process waits for a server that it needs.
	patience = 30 * time.Second
	// again is the time between two tries, and complain the time between two words about them.
	again    = 500 * time.Millisecond
	complain = 5 * time.Second
)

// ask asks PostgreSQL what a start cannot do without, and asks again where the connection has broken. What is asked
// must be the same when it was carried out before.
func ask[T any](ctx context.Context, log *slog.Logger, question func(context.Context) (T, error)) (T, error) {
	return await(ctx, log, "PostgreSQL", func(err error) bool { return !pg.IsUnavailable(err) }, question)
}

// await opens what a process cannot do without, again and again while the server may still be starting, too. A hopeless
// error ends it at once.
func await[T any](ctx context.Context, log *slog.Logger, server string, hopeless func(error) bool,
	open func(context.Context) (T, error),
) (T, error) {
	limit := time.After(patience)
	var told time.Time
	for {
		v, err := open(ctx)
		if err == nil || hopeless(err) || ctx.Err() != nil {
			return v, err
		}
		if time.Since(told) >= complain {
			told = time.Now()
			log.WarnContext(ctx, server+" does not answer yet", "error", err)
		}
		select {
		case <-time.After(again):
		case <-limit:
			return v, fmt.Errorf("gave up after %v: %w", patience, err)
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}
