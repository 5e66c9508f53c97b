package models

import (
	"context"

	"gorm.io/gorm/clause"
)

// Route is how the inside of a sandbox is reached.
type Route struct {
	SandboxID string
	TenantID  string
	State     SandboxState
	Gateway   string // URL of its node's gateway; empty = it cannot be reached
	Public    bool   // its ports need no token
}

// Route returns how a sandbox of any tenant is reached, or ErrNotFound.
func (s *Store) Route(ctx context.Context, id string) (Route, error) {
	var r Route
	res := s.db.WithContext(ctx).Raw(`
		SELECT s.id AS sandbox_id, s.tenant_id, s.state, coalesce(n.gateway, '') AS gateway,
			coalesce((s.spec->>'public')::boolean, false) AS public
		FROM sandboxes s LEFT JOIN nodes n ON n.id = s.node_id WHERE s.id = ?`, id).Scan(&r)
	if res.Error == nil && res.RowsAffected == 0 {
		return r, ErrNotFound
	}
	return r, res.Error
}

// Holds says whether a node holds a sandbox that has not ended.
func (s *Store) Holds(ctx context.Context, node, id string) (bool, error) {
	var n int64
	err := s.db.WithContext(ctx).Model(&Sandbox{}).
		Where("id = ? AND node_id = ? AND ended_at IS NULL", id, node).Count(&n).Error
	return n > 0, err
}

// Touch counts traffic as use of the sandboxes. One that somebody else is changing needs no touch.
func (s *Store) Touch(ctx context.Context, ids []string) error {
	db := s.db.WithContext(ctx)
	return db.Model(&Sandbox{}).Where("id IN (?)", db.Model(&Sandbox{}).Select("id").
		Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).
		Where("id IN ? AND ended_at IS NULL", ids)).UpdateColumn("last_active_at", clause.Expr{SQL: "now()"}).Error
}
