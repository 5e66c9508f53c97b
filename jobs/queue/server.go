package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Server is an Asynq server with a Redis client of its own, which a gate lets sleep.
type Server struct {
	asynq   *asynq.Server
	gate    *gate
	rdb     redis.UniversalClient
	handler asynq.Handler
}

// Task is what a server hands to its handler.
type Task struct {
	Kind    string // of its job
	Payload string
	Tenant  string // of its job; empty in tasks of older releases
	Again   bool   // the handler had it before, and returned an error or died
}

// ErrDrop makes a server forget a task without keeping it in Asynq's archive.
var ErrDrop = asynq.RevokeTask

// ErrNever makes a server keep a task that is malformed in Asynq's archive, where operators see it.
var ErrNever = asynq.SkipRetry

func handler(handle func(context.Context, Task) error) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, t *asynq.Task) error {
		retried, _ := asynq.GetRetryCount(ctx)
		return handle(ctx, Task{
			Kind: t.Type(), Payload: string(t.Payload()), Tenant: t.Headers()[tenantHeader], Again: retried > 0,
		})
	}
}

// ServerConfig is what a Server is made of.
type ServerConfig struct {
	Redis   *redis.Client         // the server's own, which it closes
	Notices redis.UniversalClient // tells of tasks that were added; it stays the caller's
	Queues  []string
	Slots   int // tasks at once
	Handle  func(context.Context, Task) error
	Log     *slog.Logger
}

// NewServer returns a server, which Start starts.
func NewServer(ctx context.Context, c ServerConfig) *Server {
	weights := map[string]int{}
	for _, q := range c.Queues {
		weights[q] = 1
	}
	return &Server{
		rdb: c.Redis, gate: newGate(ctx, c.Redis, c.Notices, c.Queues), handler: asynq.HandlerFunc(handler(c.Handle)),
		asynq: asynq.NewServerFromRedisClient(c.Redis, asynq.Config{
			Concurrency:              c.Slots,
			Queues:                   weights,
			TaskCheckInterval:        time.Millisecond, // the gate does the sleeping
			DelayedTaskCheckInterval: time.Second,
			ShutdownTimeout:          time.Second, // the worker has drained before
			RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
			Logger:                   asynqLog{c.Log},
			LogLevel:                 asynq.WarnLevel,
		}),
	}
}

// Start hands tasks to the handler from now on.
func (s *Server) Start() error { return s.asynq.Start(s.handler) }

// Quiet takes no new tasks.
func (s *Server) Quiet() {
	s.gate.close()
	s.asynq.Stop()
}

// Stop returns when no task is in hand.
func (s *Server) Stop() {
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
