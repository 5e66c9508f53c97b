package models

import (
	"context"
	"time"
)

// Lease is how somebody stands who has asked for one.
type Lease struct {
	Ours bool
	// Now is the time of the database, and SteadySince the moment since which the lease has been renewed without a gap, by
	// whomever. A database that was away or whose clock was set, and a machine that slept, leave a gap.
	Now, SteadySince time.Time
	// LongestMS is the longest lease of a worker: whoever lives is heard of within it.
	LongestMS int64
}

// leaseGap is the longest time between two renewals that is no gap: a holder that has died is replaced within it.
const leaseGap = 3 * time.Second

// TakeLease makes holder the one who does the named work for a while, or lengthens that while, and says whether it is.
// It takes a lease from nobody before its end.
func (s *Store) TakeLease(ctx context.Context, name, holder string, lease time.Duration) (Lease, error) {
	var l Lease
	res := s.db.WithContext(ctx).
		Raw(`INSERT INTO leases (name, holder, lease_until, beat_at, steady_since) VALUES (@name, @holder, now() + @lease, now(), now())
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until,
		beat_at = excluded.beat_at,
			steady_since = CASE WHEN leases.beat_at BETWEEN now() - @gap AND now() + interval '1 s' THEN coalesce(leases.steady_since, now()) ELSE now() END
		WHERE leases.holder = excluded.holder OR leases.lease_until < now()
		RETURNING true AS ours, now() AS now, steady_since,
			(SELECT coalesce(extract(epoch FROM max(lease_until - beat_at)) * 1000, 0)::bigint FROM nodes) AS longest_ms`,
			map[string]any{"name": name, "holder": holder, "lease": milliseconds(lease), "gap": milliseconds(leaseGap)}).
		Scan(&l)
	return l, res.Error
}

// DropLease ends a lease before its time.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	return s.db.WithContext(ctx).
		Exec("UPDATE leases SET lease_until = now() - interval '1 ms' WHERE name = ? AND holder = ?", name, holder).
		Error
}

// PruneLeases forgets leases that ended longer than age ago, and says how many.
func (s *Store) PruneLeases(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "leases", "lease_until", age, limit)
}
