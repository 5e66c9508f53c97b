package queue

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestGateKnowsAsynqsDequeue pins what the gate and the sweep know about the insides of this version of Asynq.
func TestGateKnowsAsynqsDequeue(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	opts := &redis.Options{Network: network, Addr: addr, DB: db}
	rdb, own := NewRedis(opts), NewRedis(opts)
	defer rdb.Close()
	defer own.Close()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	q := NewQueue(rdb, log)
	q.Wait(time.Minute)
	g := newGate(t.Context(), own, rdb, []string{"a", "b"})
	var held atomic.Int32
	holding := make(chan struct{}, 100)
	g.held = func() {
		held.Add(1)
		holding <- struct{}{}
	}
	ran := make(chan string, 1)
	srv := asynq.NewServerFromRedisClient(own, asynq.Config{
		Queues: map[string]int{"a": 1, "b": 1}, Concurrency: 1,
		TaskCheckInterval: time.Millisecond, Logger: asynqLog{log},
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		ran <- string(t.Payload())
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	<-holding
	tasks := []models.Dispatch{{JobID: "job_x", Kind: "exec", Queue: "b", Generation: 1}}
	gone, _, err := q.Missing(t.Context(), tasks)
	if err != nil || len(gone) != 1 {
		t.Fatalf("a task that was not sent: missing %v, %v", gone, err)
	}
	q.Send(t.Context(), tasks)
	if got := <-ran; got != "job_x" {
		t.Fatalf("ran %q", got)
	}
	<-holding // and sleeps again
	if n := held.Load(); n > 10 {
		t.Errorf("held back %d times: the server polls", n)
	}
	g.close()
	srv.Shutdown()
}

func TestMissingSeesWaitingTasks(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	rdb := NewRedis(&redis.Options{Network: network, Addr: addr, DB: db})
	defer rdb.Close()
	q := NewQueue(rdb, slog.New(slog.NewTextHandler(io.Discard, nil)))
	q.Wait(time.Minute) // a Redis that is slow has the task at the end
	tasks := []models.Dispatch{{JobID: "job_x", Kind: "exec", Queue: "docker", Generation: 3}}
	q.Send(t.Context(), tasks)
	q.Send(t.Context(), tasks) // again, as after a lost answer
	if gone, _, err := q.Missing(t.Context(), tasks); err != nil || len(gone) != 0 {
		t.Fatalf("a waiting task: missing %v, %v", gone, err)
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if gone, _, err := q.Missing(t.Context(), tasks); err != nil || len(gone) != 1 {
		t.Fatalf("a lost task: missing %v, %v", gone, err)
	}
}
