package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// server is an Asynq server with a Redis client of its own, which a gate lets sleep.
type server struct {
	asynq   *asynq.Server
	gate    *gate
	rdb     redis.UniversalClient
	handler asynq.Handler
}

func (w *Worker) newServer(ctx context.Context, queues []string, slots int, h asynq.Handler) *server {
	rdb := w.newRedis()
	weights := map[string]int{}
	for _, q := range queues {
		weights[q] = 1
	}
	return &server{
		rdb: rdb, gate: newGate(ctx, rdb, w.rdb, queues), handler: h,
		asynq: asynq.NewServerFromRedisClient(rdb, asynq.Config{
			Concurrency:              slots,
			Queues:                   weights,
			TaskCheckInterval:        time.Millisecond, // the gate does the sleeping
			DelayedTaskCheckInterval: time.Second,
			ShutdownTimeout:          time.Second, // the worker has drained before
			RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
			Logger:                   asynqLog{w.log},
			LogLevel:                 asynq.WarnLevel,
		}),
	}
}

// quiet takes no new tasks.
func (s *server) quiet() {
	s.gate.close()
	s.asynq.Stop()
}

func (s *server) stop() {
	s.asynq.Shutdown()
	_ = s.rdb.Close() // nothing uses it any more
}

// asynqLog writes Asynq's own messages to our log.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) write(level slog.Level, args []any) {
	l.log.Log(context.Background(), level, "asynq", "message", fmt.Sprint(args...))
}

func (l asynqLog) Debug(args ...any) { l.write(slog.LevelDebug, args) }
func (l asynqLog) Info(args ...any)  { l.write(slog.LevelInfo, args) }
func (l asynqLog) Warn(args ...any)  { l.write(slog.LevelWarn, args) }
func (l asynqLog) Error(args ...any) { l.write(slog.LevelError, args) }
func (l asynqLog) Fatal(args ...any) { l.write(slog.LevelError, args) }
