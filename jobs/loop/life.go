package loop

import (
	"context"
	"time"
)

// Life is the time in which a process does some of its work. What it bounds ends with it.
type Life struct {
	// End ends the life. It may be called again.
	End   context.CancelFunc
	done  <-chan struct{}
	onEnd func(func()) (stop func() bool)
}

// NewLife begins a life.
func NewLife() *Life {
	ctx, end := context.WithCancel(context.Background())
	return &Life{End: end, done: ctx.Done(), onEnd: func(f func()) func() bool { return context.AfterFunc(ctx, f) }}
}

// Done is closed when the life has ended.
func (l *Life) Done() <-chan struct{} { return l.done }

// Context is ctx, ended by the life and by cancel alone.
func (l *Life) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := l.onEnd(cancel)
	return ctx, func() { stop(); cancel() }
}

// Within is Context with a limit of time.
func (l *Life) Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := l.onEnd(cancel)
	return ctx, func() { stop(); cancel() }
}

// Every calls tick after every pause of that length, and when now says so, until the life ends. A nil now says nothing.
func (l *Life) Every(pause time.Duration, now <-chan struct{}, tick func()) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-now:
		case <-l.done:
			return
		}
		tick()
	}
}
