package queue

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// callTime is how long a request, or the end of a job, waits for one answer of Redis.
	callTime = 150 * time.Millisecond
	// redisAway is how long to leave a Redis alone that did not answer.
	redisAway = 250 * time.Millisecond
)

var errRedisAway = errors.New("redis did not answer recently")

// breaker bounds what a Redis that hangs costs its callers: the first one waits for callTime, and those of the next
// redisAway do not wait at all.
type breaker struct {
	patience time.Duration // in place of callTime; 0 = that
	failed   atomic.Pointer[time.Time]
}

// call runs f with a deadline of its own, or returns errRedisAway at once. A caller that gives up does not cut f off.
func (b *breaker) call(ctx context.Context, f func(context.Context) error) error {
	if at := b.failed.Load(); at != nil && time.Since(*at) < redisAway {
		return errRedisAway
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(b.patience, callTime))
	defer cancel()
	err := f(ctx)
	if err != nil {
		b.failed.Store(new(time.Now()))
	}
	return err
}
