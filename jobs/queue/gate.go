package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxIdle is how long an idle worker trusts that it would be woken. A lost wake-up costs at most this.
const maxIdle = time.Second

// gate lets an Asynq server sleep until there is work. Asynq only polls, which costs either half a second a job or a
// core; so while all of a server's queues are empty, this hook on its Redis client holds the next dequeue back until a
// message says that a task was added. The server's dequeues all come from one goroutine.
//
// The hook knows a dequeue by its keys. If another version of Asynq looks different, jobs still run, at the speed of
// its polling; a test notices.
type gate struct {
	queues int
	empty  int // dequeues in a row that found nothing
	wake   chan struct{}
	closed chan struct{}
	sub    *redis.PubSub
	done   sync.WaitGroup
	once   sync.Once
	held   func() // told each time a dequeue is held back
}

// newGate puts a gate for the given queues on rdb, which must serve one Asynq server and nothing else.
func newGate(ctx context.Context, rdb redis.UniversalClient, notices redis.UniversalClient, queues []string) *gate {
	g := &gate{queues: len(queues), wake: make(chan struct{}, 1), closed: make(chan struct{}), held: func() {}}
	channels := make([]string, len(queues))
	for i, q := range queues {
		channels[i] = wakeChannel + q
	}
	g.sub = notices.Subscribe(ctx, channels...)
	messages := g.sub.Channel()
	g.done.Go(func() {
		for range messages {
			g.open()
		}
	})
	rdb.AddHook(g)
	return g
}

func (g *gate) open() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// close lets everything through from now on.
func (g *gate) close() {
	g.once.Do(func() {
		close(g.closed)
		_ = g.sub.Close() // the connection is given up either way
	})
	g.done.Wait()
}

// DialHook implements redis.Hook.
func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isDequeue(cmd) {
			return next(ctx, cmd)
		}
		if g.empty >= g.queues {
			g.held()
			g.wait(maxIdle)
			g.empty = 0
		}
		err := next(ctx, cmd)
		switch {
		case errors.Is(err, redis.Nil):
			g.empty++
		case err != nil:
			g.wait(redisAway) // Asynq would ask again at once, for as long as Redis is away
		default:
			g.empty = 0
		}
		return err
	}
}

func (g *gate) wait(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-g.wake:
	case <-g.closed:
	case <-t.C:
	}
}

// isDequeue recognises EVALSHA and EVAL of Asynq's dequeue script, whose keys are pending, paused, active and lease.
func isDequeue(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 7 || !strings.HasPrefix(cmd.Name(), "evalsha") && cmd.Name() != "eval" {
		return false
	}
	for i, suffix := range []string{":pending", ":paused", ":active", ":lease"} {
		if key, ok := args[3+i].(string); !ok || !strings.HasSuffix(key, suffix) {
			return false
		}
	}
	return true
}
