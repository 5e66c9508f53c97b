package models

import (
	"context"
	"sync"
	"time"

	"sandyard/cache"
	"sandyard/models/pg"
)

// Waiting is how much of a tenant waits to run, beside what may.
type Waiting struct {
	Rate           Rate `gorm:"embedded"`
	Jobs           int
	Bytes          int // that they came with
	MaxQueued      int
	MaxQueuedBytes int
}

// Waiting counts a tenant's queued jobs, apart from what is frozen. ErrNotFound: there is no such tenant.
func (s *Store) Waiting(ctx context.Context, tenantID string) (w Waiting, err error) {
	res := s.db.WithContext(ctx).Raw(`SELECT q.*, t.max_queued, t.max_queued_bytes, t.job_rate, t.job_burst
		FROM tenants t, LATERAL (SELECT count(*) AS jobs, coalesce(sum(bytes), 0) AS bytes FROM jobs
			WHERE tenant_id = t.id AND state = 'queued' AND NOT (ready_at IS NULL AND `+left+`)) q WHERE t.id = ?`, tenantID).Scan(&w)
	return w, affected(res, ErrNotFound)
}

const (
	// countedFor is how long a count of a queue with room is believed.
	countedFor = time.Second
	// recountAfter is how soon a queue that seems full is counted again, so that refusals cost little.
	recountAfter = 20 * time.Millisecond
	// maxDepths is how many queues are known. One that is not known is counted; what is under way to it is not seen.
	maxDepths = 10_000
)

// admission holds tenants to their limits of queued jobs and bytes without a count for each submission: to what was
// counted it adds what this process has submitted since and what is under way. Other processes' jobs are seen with the
// next count.
type admission struct {
	prefix  string // of the names of its limits
	count   func(context.Context, string) (Waiting, error)
	tenants *cache.Cache[string, *queueDepth]
}

// queueDepth is what is known of one tenant's queue.
type queueDepth struct {
	prefix   string
	counting sync.Mutex // one count at a time

	mu      sync.Mutex
	counted Waiting
	at      time.Time // of the count
	since   load      // accepted, and maybe not counted yet
	coming  load      // under way
}

// load is what a submission adds to a queue.
type load struct{ jobs, bytes int }

func (l *load) add(x load, times int) {
	l.jobs += times * x.jobs
	l.bytes += times * x.bytes
}

func (sub *Submission) load() load { return load{len(sub.Jobs), sub.size()} }

func newAdmission(prefix string, count func(context.Context, string) (Waiting, error)) *admission {
	return &admission{prefix: prefix, count: count, tenants: cache.New[string, *queueDepth](maxDepths, 0)}
}

// admitJobs reserves room for a submission with its tenant, and with its user where it has one; done says whether it
// was accepted. Its error is a *LimitError where there is no room. Deletes make room, and what the platform submits for
// itself is not the tenant's doing.
func (s *Store) admitJobs(ctx context.Context, sub *Submission) (done func(accepted bool), err error) {
	if sub.NoActivity || sub.Jobs[0].Kind == KindDelete {
		return func(bool) {}, nil
	}
	tenant, err := s.admit.admit(ctx, sub.TenantID, sub.load())
	if err != nil || sub.User == "" {
		return tenant, err
	}
	user, err := s.users.admit(ctx, sub.User, sub.load())
	if err != nil {
		tenant(false)
		return nil, err
	}
	return func(accepted bool) { tenant(accepted); user(accepted) }, nil
}

// admit reserves room in the queue of a tenant, or of a user.
func (a *admission) admit(ctx context.Context, of string, want load) (done func(accepted bool), err error) {
	q := a.of(of)
	known, refusal := q.look(want)
	if time.Since(known) > countedFor || refusal != nil && time.Since(known) > recountAfter {
		if err := q.recount(ctx, known, of, a.count); err != nil {
			return nil, err
		}
	}
	return q.reserve(want)
}

func (a *admission) of(tenantID string) *queueDepth {
	q, _ := a.tenants.GetOrSet(tenantID, &queueDepth{prefix: a.prefix})
	return q.Value()
}

// look says when the queue was counted, and why there is no room in it.
func (q *queueDepth) look(want load) (time.Time, *LimitError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at, q.refusal(want)
}

func (q *queueDepth) refusal(want load) *LimitError {
	jobs := q.counted.Jobs + q.since.jobs + q.coming.jobs
	bytes := q.counted.Bytes + q.since.bytes + q.coming.bytes
	switch {
	case jobs+want.jobs > q.counted.MaxQueued:
		return &LimitError{Limit: q.prefix + "max_queued", Used: float64(jobs), Max: float64(q.counted.MaxQueued)}
	case bytes+want.bytes > q.counted.MaxQueuedBytes:
		return &LimitError{Limit: q.prefix + "max_queued_bytes", Used: float64(bytes), Max: float64(q.counted.MaxQueuedBytes)}
	}
	return nil
}

// recount counts, unless somebody else has done so since the count known.
func (q *queueDepth) recount(
	ctx context.Context,
	known time.Time,
	tenantID string,
	count func(context.Context, string) (Waiting, error),
) error {
	q.counting.Lock()
	defer q.counting.Unlock()
	q.mu.Lock()
	fresh, before := q.at.After(known), q.since
	q.mu.Unlock()
	if fresh {
		return nil
	}
	w, err := counted(ctx, tenantID, count)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted, q.at = w, time.Now()
	q.since.add(before, -1) // what was accepted before the count is in it
	return nil
}

// counted counts again where the database was away for a moment, as long as a submission does.
func counted(
	ctx context.Context,
	tenantID string,
	count func(context.Context, string) (Waiting, error),
) (w Waiting, err error) {
	wait := submitRetry
	for try := 0; ; try++ {
		if w, err = count(ctx, tenantID); err == nil || !pg.IsUnavailable(err) || try == submitRetries {
			return w, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return w, err
		}
		wait *= 2
	}
}

func (q *queueDepth) reserve(want load) (done func(accepted bool), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if refusal := q.refusal(want); refusal != nil {
		return nil, refusal
	}
	q.coming.add(want, 1)
	return func(accepted bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.coming.add(want, -1)
		if accepted {
			q.since.add(want, 1)
		}
	}, nil
}
