package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// caller marks the calls of a test's own goroutine: those that the queue makes again later are not its.
type caller struct{}

// TestEndsOfManyJobsAreOnePipeline: a Redis that hangs costs an end that 10,000 jobs follow from one wait, not one each.
func TestEndsOfManyJobsAreOnePipeline(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	calls := &callCounter{}
	rdb := NewRedis(&redis.Options{Network: network, Addr: addr, DB: db}, calls)
	t.Cleanup(func() { _ = rdb.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	patient, q := NewQueue(rdb, log), NewQueue(rdb, log)
	patient.Wait(testenv.Patience())
	t.Cleanup(patient.Close)
	t.Cleanup(q.Close)
	f := models.FinishEffects{}
	for i := range 10_000 {
		f.Ended = append(f.Ended, fmt.Sprintf("job_%d", i))
		f.Dispatch = append(f.Dispatch, models.Dispatch{JobID: f.Ended[i], Kind: "exec", Queue: "a", Generation: 1})
	}
	sub := rdb.PSubscribe(t.Context(), doneChannel+"*")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	patient.Announce(t.Context(), f.Ended...)
	if n := calls.pipelines.Load(); n > 20 {
		t.Errorf("%d trips to Redis", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience())
	defer cancel()
	for range f.Ended {
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			t.Fatal(err)
		}
	}

	calls.hang.Store(true)
	began := time.Now()
	q.Follow(context.WithValue(t.Context(), caller{}, true), f)
	if n := calls.hung.Load(); n != 1 {
		t.Errorf("%d calls waited for a Redis that hangs, for %v", n, time.Since(began))
	}
}

// callCounter counts pipelines, and can make all calls hang.
type callCounter struct {
	pipelines, hung atomic.Int64
	hang            atomic.Bool
}

func (c *callCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *callCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.hang.Load() {
			return c.wait(ctx)
		}
		return next(ctx, cmd)
	}
}

func (c *callCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.pipelines.Add(1)
		if c.hang.Load() {
			return c.wait(ctx)
		}
		return next(ctx, cmds)
	}
}

func (c *callCounter) wait(ctx context.Context) error {
	if ctx.Value(caller{}) != nil {
		c.hung.Add(1)
	}
	<-ctx.Done()
	return ctx.Err()
}
