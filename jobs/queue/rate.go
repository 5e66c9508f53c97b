package queue

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/models"
)

// takeTokens takes ARGV[1] tokens from each bucket of KEYS, or none from any; a negative number gives them back, and 0
// only looks. Of each bucket ARGV has the microseconds that one token takes to come, and the tokens that it holds. A
// bucket is kept as the moment at which it is full again, and goes by itself then. The answer is the first bucket that
// has too few (0 = none) and the microseconds until it has enough, or where nothing was to be taken how many tokens
// each lacks.
//
//nolint:gochecknoglobals // a constant, with its digest
var takeTokens = redis.NewScript(`
local time = redis.call('TIME')
local now, n = time[1] * 1000000 + time[2], tonumber(ARGV[1])
local full, lacks = {}, {}
for i, key in ipairs(KEYS) do
	local token, burst = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
	full[i] = math.max(tonumber(redis.call('GET', key) or 0), now)
	lacks[i] = math.min(burst, math.ceil((full[i] - now) / token))
	full[i] = math.max(full[i] + n * token, now)
	local wait = full[i] - now - burst * token
	if n > 0 and wait > 0 then
		return {i, wait}
	end
end
if n == 0 then
	return lacks
end
for i, key in ipairs(KEYS) do
	local ms = math.ceil((full[i] - now) / 1000)
	if ms > 0 then
		redis.call('SET', key, string.format('%.0f', full[i]), 'PX', string.format('%.0f', ms))
	else
		redis.call('DEL', key)
	end
end
return {0, 0}`)

// newUnchecked counts what was let through because Redis did not answer.
func newUnchecked() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandyard_job_rate_unchecked_total",
		Help: "Submissions that were accepted without a look at their job rate, because Redis did not answer.",
	})
}

// Metrics are those of the queue's callers.
func (q *Queue) Metrics() prometheus.Collector { return q.unchecked }

// Charge takes one token from each bucket. A *models.LimitError says which has none; then none was taken. Without an
// answer of Redis it lets through: a limit of rate keeps load away, and is not worth an outage.
func (q *Queue) Charge(ctx context.Context, buckets []models.Bucket) error {
	if len(buckets) == 0 {
		return nil
	}
	answer, err := q.tokens(ctx, buckets, 1)
	if err != nil || len(answer) != 2 {
		q.unchecked.Inc()
		q.report(ctx, "job rate not checked", err)
		return nil
	}
	if answer[0] == 0 {
		return nil
	}
	b := buckets[answer[0]-1]
	most := float64(b.Burst())
	return &models.LimitError{
		Limit:      b.Limit(),
		Used:       most,
		Max:        most,
		PerSecond:  *b.JobRate,
		RetryAfter: time.Duration(answer[1]) * time.Microsecond,
	}
}

// GiveBack returns the tokens of a submission that was not accepted, or was before.
func (q *Queue) GiveBack(ctx context.Context, buckets []models.Bucket) {
	if len(buckets) > 0 {
		_, err := q.tokens(ctx, buckets, -1)
		q.report(ctx, "job rate not given back", err)
	}
}

// Lacking is how many tokens of each bucket are taken. Error: Redis did not answer.
func (q *Queue) Lacking(ctx context.Context, buckets []models.Bucket) ([]int64, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	n, err := q.tokens(ctx, buckets, 0)
	if err == nil && len(n) != len(buckets) {
		err = errors.New("redis answers for other buckets")
	}
	return n, err
}

func (q *Queue) tokens(ctx context.Context, buckets []models.Bucket, n int) (answer []int64, err error) {
	var keys []string
	args := []any{n}
	for _, b := range buckets {
		key := "sandyard:rate:{" + b.Tenant + "}" // one slot of a cluster
		if b.User != "" {
			key += ":" + b.User
		}
		keys = append(keys, key)
		args = append(args, tokenTime(*b.JobRate), b.Burst())
	}
	err = q.breaker.call(ctx, func(ctx context.Context) error {
		answer, err = takeTokens.Run(ctx, q.rdb, keys, args...).Int64Slice()
		return err
	})
	return answer, err
}

// tokenTime is how many microseconds one token takes to come.
func tokenTime(perSecond float64) int64 {
	return max(1, int64(math.Round(1e6/perSecond)))
}
