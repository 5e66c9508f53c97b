package models

import (
	"context"

	"gorm.io/gorm"
)

// Nodes lists all nodes that are known, the oldest first; dead ones stay for a minute, or as long as they hold sandboxes.
func (s *Store) Nodes(ctx context.Context) ([]NodeLoad, error) {
	return nodeLoads(s.db.WithContext(ctx), "")
}

// Drain makes a node take no new sandboxes, and with leave also makes its process end. ErrNotFound if there is no such
// node alive.
func (s *Store) Drain(ctx context.Context, node string, leave bool) error {
	return s.tellNode(ctx, node, map[string]any{
		"draining_at": gorm.Expr("coalesce(draining_at, now())"), "leaving": gorm.Expr("leaving OR ?", leave),
	})
}

// Undrain lets a node take new sandboxes again. ErrNotFound if there is no such node alive, or it is leaving.
func (s *Store) Undrain(ctx context.Context, node string) error {
	return s.tellNode(ctx, node, map[string]any{"draining_at": nil}, "NOT leaving")
}

func (s *Store) tellNode(ctx context.Context, node string, what map[string]any, only ...string) error {
	q := s.db.WithContext(ctx).Model(&Node{}).Where("id = ? AND lease_until > now()", node)
	for _, condition := range only {
		q = q.Where(condition)
	}
	res := q.Updates(what)
	if res.Error == nil && res.RowsAffected == 0 {
		return ErrNotFound
	}
	return res.Error
}
