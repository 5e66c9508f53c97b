package models

import (
	"context"
	"math"
	"time"
)

// Rate is how often a tenant or a user may submit; the zero value is no limit.
type Rate struct {
	JobRate  *float64 // submissions a second
	JobBurst *int     // at once; nil = those of one second
}

// Limited says whether there is a limit.
func (r Rate) Limited() bool { return r.JobRate != nil }

// Burst is how many may be submitted at once.
func (r Rate) Burst() int {
	switch {
	case r.JobBurst != nil:
		return max(1, *r.JobBurst)
	case r.JobRate != nil:
		return max(1, int(math.Ceil(*r.JobRate)))
	}
	return 0
}

// Bucket is a Rate and whose it is.
type Bucket struct {
	Rate

	Tenant, User string // User is empty for the tenant's
}

// Limit is the name of the bucket's limit.
func (b Bucket) Limit() string {
	if b.User != "" {
		return userLimit + "job_rate"
	}
	return "job_rate"
}

// Buckets returns the limited rates that hold for a submission of the tenant, and of the user unless that is empty. It
// asks the database as often as Submit would, which then does not ask again.
func (s *Store) Buckets(ctx context.Context, tenantID, user string) ([]Bucket, error) {
	var all []Bucket
	for _, one := range []struct {
		of   string
		from *admission
	}{{tenantID, s.admit}, {user, s.users}} {
		if one.of == "" {
			continue
		}
		r, err := one.from.rate(ctx, one.of)
		if err != nil {
			return nil, err
		}
		if r.Limited() {
			all = append(all, Bucket{Rate: r, Tenant: tenantID, User: map[bool]string{true: user}[one.from == s.users]})
		}
	}
	return all, nil
}

// rate is as old as the count of the queue, which it came with.
func (a *admission) rate(ctx context.Context, of string) (Rate, error) {
	q := a.of(of)
	known, _ := q.look(load{})
	if time.Since(known) > countedFor {
		if err := q.recount(ctx, known, of, a.count); err != nil {
			return Rate{}, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counted.Rate, nil
}

// Accepted says whether a submission with this idempotency key was accepted before, so that another one adds nothing.
func (s *Store) Accepted(ctx context.Context, tenantID, key string) bool {
	if key == "" {
		return false
	}
	var n int64
	err := s.db.WithContext(ctx).Model(&idempotencyKey{}).Where("tenant_id = ? AND key = ?", tenantID, key).Count(&n).Error
	return err == nil && n > 0
}
