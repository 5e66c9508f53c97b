package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// SetLabels replaces the labels of a tenant's live sandbox.
func (s *Store) SetLabels(ctx context.Context, tenant, sandbox string, labels map[string]string) error {
	return s.set(ctx, tenant, sandbox, func(b *Sandbox) []any {
		b.Labels = labels
		return []any{"labels"}
	})
}

// SetStopping says what becomes of a tenant's live sandbox at its timeout, delete or pause, and after how many
// milliseconds of a pause it is deleted; 0 = never.
func (s *Store) SetStopping(ctx context.Context, tenant, sandbox, onTimeout string, pausedMS int64) error {
	return s.set(ctx, tenant, sandbox, func(b *Sandbox) []any {
		b.OnTimeout, b.PausedTimeoutMS = onTimeout, pausedMS
		return []any{"on_timeout", "paused_timeout_ms"}
	})
}

// SetLife ends a tenant's live sandbox, whatever its state then, so long from now on; 0 = never. It lives no longer than most
// from its start; 0 = that is not limited.
func (s *Store) SetLife(ctx context.Context, tenant, sandbox string, left, most time.Duration) error {
	now := s.Now(ctx)
	return s.set(ctx, tenant, sandbox, func(b *Sandbox) []any {
		b.MaxLifetimeMS = left.Milliseconds()
		if left > 0 && b.StartedAt != nil {
			b.MaxLifetimeMS += max(0, now.Sub(*b.StartedAt).Milliseconds())
		}
		if most > 0 && (left == 0 || b.MaxLifetimeMS > most.Milliseconds()) {
			b.MaxLifetimeMS = most.Milliseconds()
		}
		return []any{"max_lifetime_ms"}
	})
}

// set changes columns of a live sandbox's row, under its lock.
func (s *Store) set(ctx context.Context, tenant, sandbox string, change func(*Sandbox) (columns []any)) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		box, err := locked(tx, sandbox, lockSandbox)
		switch {
		case err != nil:
			return err
		case box.TenantID != tenant:
			return ErrNotFound
		case box.Ended():
			return box.endedError()
		}
		columns := change(&box)
		return tx.Model(&box).Select(columns[0], columns[1:]...).Updates(&box).Error
	})
}
