package models

import (
	"context"

	"gorm.io/gorm"
)

// OnEngine returns the sandboxes that are to exist on a node's engine, and do not merely become or cease to be.
func (s *Store) OnEngine(ctx context.Context, on Node) ([]Sandbox, error) {
	var list []Sandbox
	err := s.db.WithContext(ctx).Where("ended_at IS NULL AND state IN ('running', 'paused')").
		Where(s.heldOn(ctx, on)).Find(&list).Error
	return list, err
}

// Unwanted returns those of the ids that no live sandbox on the node's engine has: whatever carries them there is
// nobody's. A sandbox that has no holder yet may be about to be made there.
func (s *Store) Unwanted(ctx context.Context, on Node, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var wanted []string
	db := s.db.WithContext(ctx)
	err := db.Model(&Sandbox{}).Where("id IN ? AND ended_at IS NULL", ids).
		Where(db.Where(s.heldOn(ctx, on)).Or("node_id IS NULL")).Pluck("id", &wanted).Error
	return without(ids, wanted), err
}

// heldOn selects sandboxes that are held on a node's engine.
func (s *Store) heldOn(ctx context.Context, on Node) *gorm.DB {
	db := s.db.WithContext(ctx)
	if on.Engine == "" { // sandboxes do not live on nodes
		return db.Where("provider = ? AND node_id IS NULL", on.Provider)
	}
	return db.Where("node_id IN (SELECT id FROM nodes WHERE provider = ? AND engine = ?)", on.Provider, on.Engine)
}

func without(all, some []string) []string {
	drop := make(map[string]bool, len(some))
	for _, x := range some {
		drop[x] = true
	}
	var left []string
	for _, x := range all {
		if !drop[x] {
			left = append(left, x)
		}
	}
	return left
}

// Observe writes down what a provider says of a sandbox where the row says something else: somebody paused or resumed
// it behind our back, and its clocks start as if a job had. It answers whether it did; while a job is under way that one will
// know better.
func (s *Store) Observe(ctx context.Context, id string, was, seen SandboxState) (bool, error) {
	res := s.db.WithContext(ctx).Exec(`UPDATE sandboxes SET state = @seen, desired = @seen, observed = @seen, observed_at = now(),
			paused_at = CASE WHEN @seen = 'paused' THEN now() ELSE paused_at END, last_active_at = now(),
			expires_at = CASE WHEN @seen = 'running' THEN now() + timeout_ms * interval '1 ms' ELSE expires_at END, changed_by = 'platform', changed_job = NULL
		WHERE id = @id AND state = @was AND state <> @seen AND desired <> 'deleted' AND ended_at IS NULL
		  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.state IN ('queued', 'running'))`,
		map[string]any{"id": id, "was": was, "seen": seen})
	return res.RowsAffected > 0, res.Error
}
