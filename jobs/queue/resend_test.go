package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// queueThatHangs is a queue whose calls to Redis hang at first.
func queueThatHangs(t *testing.T) (*Queue, *redis.Client, *callCounter) {
	t.Helper()
	network, addr, db := testenv.Redis(t)
	calls, options := &callCounter{}, &redis.Options{Network: network, Addr: addr, DB: db}
	calls.hang.Store(true)
	rdb, other := NewRedis(options, calls), NewRedis(options)
	q := NewQueue(rdb, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() {
		q.Close()
		_ = errors.Join(rdb.Close(), other.Close())
	})
	return q, other, calls
}

func dispatches(n int) []models.Dispatch {
	tasks := make([]models.Dispatch, n)
	for i := range tasks {
		tasks[i] = models.Dispatch{JobID: fmt.Sprintf("job_%d", i), Kind: "exec", Queue: "a", Generation: 1}
	}
	return tasks
}

// TestTasksThatRedisDidNotTakeAreSentAgain: in their order, and without a sweep.
func TestTasksThatRedisDidNotTakeAreSentAgain(t *testing.T) {
	t.Parallel()
	q, rdb, calls := queueThatHangs(t)
	woken := rdb.Subscribe(t.Context(), wakeChannel+"a")
	t.Cleanup(func() { _ = woken.Close() })
	if _, err := woken.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.Send(t.Context(), dispatches(3))
	if n := rdb.Exists(t.Context(), taskKey("a", "job_0:1")).Val(); n != 0 {
		t.Fatal("Redis took a task while it hung")
	}
	calls.hang.Store(false)
	for range 3 { // one for each task
		if _, err := woken.ReceiveTimeout(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	pending, err := rdb.LRange(t.Context(), "asynq:{a}:pending", 0, -1).Result()
	if err != nil || fmt.Sprint(pending) != "[job_2:1 job_1:1 job_0:1]" {
		t.Errorf("Redis holds %v, %v", pending, err)
	}
}

// TestTasksThatAreKeptAreBounded: a Redis that is away for long costs a bounded amount of memory.
func TestTasksThatAreKeptAreBounded(t *testing.T) {
	t.Parallel()
	q, _, _ := queueThatHangs(t)
	q.Send(t.Context(), dispatches(resendHeld+5))
	q.resender.mu.Lock()
	held := len(q.resender.held)
	q.resender.mu.Unlock()
	if held != resendHeld {
		t.Errorf("%d tasks are kept", held)
	}
	q.Close()
	if left := q.resender.keep([]queuedTask{{}}); left != 1 {
		t.Error("a closed queue keeps tasks")
	}
}
