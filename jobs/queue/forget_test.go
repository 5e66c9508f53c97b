package queue

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestQueuesOfAKilledNodeAreForgotten: what it had in hand, and what waited for it, would else stay in Redis for ever.
func TestQueuesOfAKilledNodeAreForgotten(t *testing.T) {
	t.Parallel()
	for name, registered := range map[string]bool{"registered": true, "its registration was lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network, addr, db := testenv.Redis(t)
			opts := &redis.Options{Network: network, Addr: addr, DB: db}
			rdb, own := NewRedis(opts), NewRedis(opts)
			t.Cleanup(func() { rdb.Close(); own.Close() })
			q := NewQueue(rdb, slog.New(slog.DiscardHandler))
			taken := killedWorker(t, own, "node-n1")
			tasks := []models.Dispatch{
				{JobID: "job_a", Kind: "exec", Queue: "node-n1", Generation: 1},
				{JobID: "job_b", Kind: "exec", Queue: "node-n1", Generation: 1},
			}
			ctx := t.Context()
			q.Send(ctx, tasks)
			<-taken
			testenv.Eventually(t, "the other task waits", func() bool { // a Redis that was slow gets it again
				return rdb.HGet(ctx, "asynq:{node-n1}:t:job_b:1", "state").Val() == "pending"
			})
			q.Close() // sends nothing again
			if !registered {
				must(t, rdb.Del(ctx, "asynq:queues").Err())
			}
			if state := rdb.HGet(ctx, "asynq:{node-n1}:t:job_a:1", "state").Val(); state != "active" {
				t.Fatalf("the task in hand is %q", state)
			}
			must(t, q.ForgetNode(ctx, "n1"))
			if left, err := rdb.Keys(ctx, "asynq:{*n1*").Result(); err != nil || len(left) != 0 {
				t.Errorf("left %v, %v", left, err)
			}
			if queues, err := rdb.SMembers(ctx, "asynq:queues").Result(); err != nil || len(queues) != 0 {
				t.Errorf("Asynq still knows %v, %v", queues, err)
			}
			must(t, q.ForgetNode(ctx, "n1"))
		})
	}
}

// killedWorker takes one task of the queue, says so, and does nothing more about it, as if it had been killed.
func killedWorker(t *testing.T, rdb redis.UniversalClient, queue string) <-chan struct{} {
	t.Helper()
	taken, over := make(chan struct{}), make(chan struct{})
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{queue: 1}, Concurrency: 1, TaskCheckInterval: time.Millisecond, ShutdownTimeout: time.Millisecond,
		Logger: asynqLog{slog.New(slog.DiscardHandler)},
	})
	must(t, srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(taken)
		<-over
		return nil
	})))
	t.Cleanup(func() {
		close(over)
		srv.Shutdown()
	})
	return taken
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
