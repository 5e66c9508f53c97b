package models

import (
	"context"
	"time"
)

// overdue selects sandboxes that have passed their expiry and are not ending yet. One that is still to be made has
// nothing that could be paused. The timeout of a paused one stands still, and starts anew with the resume.
const overdue = `expires_at <= now() AND state IN ('creating', 'running')
	AND (on_timeout = 'delete' OR state = 'creating' OR desired = 'running'
		AND (pause_failed_at IS NULL OR pause_failed_at <= now() - interval '10 s'))`

// DueTimeouts returns live sandboxes that have passed their expiry and are not ending yet.
func (s *Store) DueTimeouts(ctx context.Context, limit int) ([]Sandbox, error) {
	return s.sandboxesWhere(ctx, limit, "expires_at", overdue)
}

// DueIdle returns running sandboxes that nobody had used for longer than their idle timeout at the moment at.
func (s *Store) DueIdle(ctx context.Context, at time.Time, limit int) ([]Sandbox, error) {
	return s.sandboxesWhere(
		ctx,
		limit,
		"last_active_at",
		`idle_timeout_ms > 0 AND state = 'running' AND desired = 'running'
		AND last_active_at + idle_timeout_ms * interval '1 ms' <= ?
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.state IN ('queued', 'running'))`,
		at,
	)
}

// DueLifetimes returns live sandboxes that have lived as long as they may.
func (s *Store) DueLifetimes(ctx context.Context, limit int) ([]Sandbox, error) {
	return s.sandboxesWhere(ctx, limit, "started_at", `max_lifetime_ms > 0 AND state IN ('running', 'paused')
		AND started_at + max_lifetime_ms * interval '1 ms' <= now()`)
}

// DuePaused returns sandboxes that have been paused for longer than they may, whatever is frozen in them.
func (s *Store) DuePaused(ctx context.Context, limit int) ([]Sandbox, error) {
	return s.sandboxesWhere(ctx, limit, "paused_at", `paused_timeout_ms > 0 AND state = 'paused' AND desired = 'paused'
		AND paused_at + paused_timeout_ms * interval '1 ms' <= now()`)
}

// StuckDeletes returns sandboxes that are to go but have no job left that would do it.
func (s *Store) StuckDeletes(ctx context.Context, limit int) ([]Sandbox, error) {
	return s.sandboxesWhere(ctx, limit, "created_at", `(state = 'deleting' OR desired = 'deleted')
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.kind = 'delete'
			AND (j.state IN ('queued', 'running') OR j.finished_at > now() - interval '10 s'))`)
}

func (s *Store) sandboxesWhere(ctx context.Context, limit int, order, cond string, args ...any) ([]Sandbox, error) {
	var list []Sandbox
	err := s.db.WithContext(ctx).Where("ended_at IS NULL AND "+cond, args...).Order(order).Limit(limit).Find(&list).Error
	return list, err
}
