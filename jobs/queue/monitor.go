package queue

import (
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
)

// NewMonitor returns Asynq's own pages about the queues, which can look but not touch. They hold connections until
// Close.
func NewMonitor(root string, o *redis.Options) *asynqmon.HTTPHandler {
	return asynqmon.New(asynqmon.Options{RootPath: root, RedisConnOpt: monitorRedis{o}, ReadOnly: true})
}

// monitorRedis is an asynq.RedisConnOpt that keeps all of the options.
type monitorRedis struct{ options *redis.Options }

// MakeRedisClient implements asynq.RedisConnOpt.
func (m monitorRedis) MakeRedisClient() any { return NewRedis(m.options) }
