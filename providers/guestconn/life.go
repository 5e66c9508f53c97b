package guestconn

import (
	"context"
	"sync"
	"time"
)

// Life is how long a provider goes on with what it does behind the backs of its callers.
type Life struct {
	end   context.CancelFunc
	onEnd func(func()) func() bool
}

// NewLife begins one, which lasts until End.
func NewLife() Life {
	life, end := context.WithCancel(context.Background())
	return Life{end: end, onEnd: func(f func()) func() bool { return context.AfterFunc(life, f) }}
}

// End ends all that goes on, and at once what begins afterwards.
func (l Life) End() { l.end() }

// Own is for what is finished although its caller is gone: it keeps the values of ctx, and ends with its time or with
// the life.
func (l Life) Own(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := l.onEnd(cancel)
	return ctx, func() { stop(); cancel() }
}

// Detached waits for work no longer than for ctx, and answers what late makes of ctx's error then: work goes on
// without, as one of group and for as long as Own says.
func Detached[T any](ctx context.Context, l Life, group *sync.WaitGroup, limit time.Duration,
	late func(error) error, work func(context.Context) (T, error),
) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	group.Go(func() {
		own, stop := l.Own(ctx, limit)
		defer stop()
		value, err := work(own)
		done <- outcome{value, err}
	})
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, late(ctx.Err())
	}
}
