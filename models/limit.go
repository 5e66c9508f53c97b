package models

import (
	"context"
	"math"
	"time"
)

// LimitUse is a limit with how much of it is in use.
type LimitUse struct {
	Name      string
	Used      *float64 // nil = it is not known
	Max       *float64 // nil = there is no limit
	PerSecond *float64 // of a rate, whose Max is what may come at once
}

// limitsOf are the limits of a tenant or a user as they are stored, with what stands.
type limitsOf struct {
	Quota    Quota    `gorm:"embedded"`
	Rate     Rate     `gorm:"embedded"`
	Standing Standing `gorm:"embedded"`

	MaxQueued                                        *float64
	MaxQueuedBytes                                   float64
	MaxTemplates, MaxSchedules, Templates, Schedules float64
}

// LimitsInUse returns the limits of a tenant and, unless that is empty, of one of its users. Lacking says how many
// tokens each of the buckets lacks; nil = that is not known. Error: ErrNotFound.
func (s *Store) LimitsInUse(
	ctx context.Context,
	tenantID, user string,
	lacking func([]Bucket) []int64,
) ([]LimitUse, error) {
	own, err := s.tenantLimits(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	w, err := s.Waiting(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	buckets := []Bucket{{Rate: own.Rate, Tenant: tenantID}}
	all := [][]LimitUse{append(own.uses("", w.Jobs),
		LimitUse{Name: "max_queued_bytes", Used: number(w.Bytes), Max: &own.MaxQueuedBytes},
		LimitUse{Name: "max_templates", Used: &own.Templates, Max: &own.MaxTemplates},
		LimitUse{Name: "max_schedules", Used: &own.Schedules, Max: &own.MaxSchedules})}
	if user != "" {
		theirs, waiting, err := s.userLimits(ctx, user)
		if err != nil {
			return nil, err
		}
		buckets = append(buckets, Bucket{Rate: theirs.Rate, Tenant: tenantID, User: user})
		all = append(all, theirs.uses(userLimit, waiting))
	}
	return withRates(all, buckets, lacking), nil
}

// withRates puts each bucket's rate behind the other limits of whom it belongs to.
func withRates(all [][]LimitUse, buckets []Bucket, lacking func([]Bucket) []int64) (list []LimitUse) {
	var limited []Bucket
	for _, b := range buckets {
		if b.Limited() {
			limited = append(limited, b)
		}
	}
	taken := lacking(limited)
	for i, b := range buckets {
		use := LimitUse{Name: b.Limit(), PerSecond: b.JobRate}
		if b.Limited() {
			use.Max = number(b.Burst())
			if len(taken) > 0 {
				use.Used, taken = number(int(taken[0])), taken[1:]
			}
		}
		list = append(append(list, all[i]...), use)
	}
	return list
}

func (l limitsOf) uses(prefix string, waiting int) []LimitUse {
	cores := thousandths(l.Standing.CPUs) / 1000
	uses := []LimitUse{
		{Name: prefix + "max_sandboxes", Used: number(l.Standing.Live), Max: numberOf(l.Quota.MaxSandboxes)},
		{Name: prefix + "max_cpus", Used: &cores, Max: l.Quota.MaxCPUs},
		{Name: prefix + "max_memory_mib", Used: number(int(l.Standing.MemoryMiB)), Max: numberOf(l.Quota.MaxMemoryMiB)},
		{Name: prefix + "max_queued", Used: number(waiting), Max: l.MaxQueued},
	}
	return uses
}

func number(n int) *float64 { return new(float64(n)) }

func numberOf[N int | int64](n *N) *float64 {
	if n == nil {
		return nil
	}
	return number(int(*n))
}

func (s *Store) tenantLimits(ctx context.Context, tenantID string) (l limitsOf, err error) {
	res := s.db.WithContext(ctx).Raw(`SELECT t.*, s.*,
			(SELECT count(*) FROM templates WHERE coalesce(tenant_id, '') = t.id) AS templates,
			(SELECT count(*) FROM schedules WHERE tenant_id = t.id) AS schedules
		FROM tenants t, LATERAL (`+standing+`tenant_id = t.id) s WHERE t.id = ?`, tenantID).Scan(&l)
	return l, affected(res, ErrNotFound)
}

// userLimits counts what waits of a user also where that is not limited.
func (s *Store) userLimits(ctx context.Context, user string) (l limitsOf, waiting int, err error) {
	res := s.db.WithContext(ctx).
		Raw(`SELECT u.max_sandboxes, u.max_cpus, u.max_memory_mib, u.max_queued, u.job_rate, u.job_burst, s.*
		FROM users u, LATERAL (`+standing+`tenant_id = u.tenant_id AND user_id = u.id) s WHERE u.id = ?`, user).
		Scan(&l)
	if err := affected(res, ErrNotFound); err != nil {
		return l, 0, err
	}
	waiting, err = s.queuedOf(ctx, user)
	return l, waiting, err
}

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
