package models

import (
	"context"
	"time"
)

// TakeLease makes holder the one who does the named work for a while, or lengthens that while, and says whether it is.
// It takes a lease from nobody before its end.
func (s *Store) TakeLease(ctx context.Context, name, holder string, lease time.Duration) (bool, error) {
	res := s.db.WithContext(ctx).Exec(`INSERT INTO leases (name, holder, lease_until) VALUES (?, ?, now() + ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
		WHERE leases.holder = excluded.holder OR leases.lease_until < now()`, name, holder, milliseconds(lease))
	return res.RowsAffected > 0, res.Error
}

// DropLease gives a lease back before its end.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	return s.db.WithContext(ctx).Exec("DELETE FROM leases WHERE name = ? AND holder = ?", name, holder).Error
}
