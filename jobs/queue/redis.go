package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ParseRedis reads a redis://, rediss:// or unix:// URL.
func ParseRedis(url string) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL must be redis://host:port/db, rediss:// or unix:///path: %w", err)
	}
	return o, nil
}

// answerTime is how long a loop waits for Redis. Callers that somebody waits for have deadlines of their own.
const answerTime = time.Second

// NewRedis returns a client of its own. Maintenance notices are a feature of one vendor's cloud that others answer with
// an error. Each hook is asked to make every call. No call and no dial is repeated, and all heed their context: a Redis
// that hangs must not hold up its callers, and a dequeue whose answer was lost must not take a second task.
func NewRedis(o *redis.Options, hooks ...redis.Hook) *redis.Client {
	own := *o
	own.PushNotificationProcessor = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	own.DialerRetries, own.MaxRetries = 1, -1
	own.ContextTimeoutEnabled = true
	own.ReadTimeout, own.WriteTimeout = cmp.Or(own.ReadTimeout, answerTime), cmp.Or(own.WriteTimeout, answerTime)
	rdb := redis.NewClient(&own)
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	return rdb
}

// LogRedis sends what the Redis client has to say by itself to log, for the whole process. It repeats what failed calls
// report anyway, so it is for debugging only.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis", "message", fmt.Sprintf(format, v...))
}
