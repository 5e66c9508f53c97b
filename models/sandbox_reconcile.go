package models

import (
	"context"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// OnEngine returns the sandboxes that are to exist on a node's engine, and do not merely become or cease to be.
func (s *Store) OnEngine(ctx context.Context, on Node) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Where("ended_at IS NULL AND state IN ('running', 'paused')").
		Where(s.heldOn(ctx, on)))
}

// Unwanted returns those of the ids that no live sandbox on the node's engine has: whatever carries them there is
// nobody's. A sandbox that has no holder yet may be about to be made there.
func (s *Store) Unwanted(ctx context.Context, on Node, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var wanted []string
	db := s.db.WithContext(ctx)
	err := db.Model(&Sandbox{}).Where("id = ANY (?::text[]) AND ended_at IS NULL", idArray(ids)).
		Where(db.Where(s.heldOn(ctx, on)).Or("node_id IS NULL AND provider = ?", on.Provider)).Pluck("id", &wanted).Error
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

// underWay is true where a job may change the sandbox, or is at it. What merely waits, for the end of an exec or of
// what a pause has frozen, is not.
const underWay = `EXISTS (SELECT 1 FROM jobs WHERE sandbox_id = @id AND kind <> '` + KindExecWait + `'
	AND (state = 'running' OR state = 'queued' AND ready_at IS NOT NULL AND NOT ` + left + `))`

// Observe writes down what a provider says of a sandbox where the row says something else: somebody paused or resumed
// it behind our back, and its clocks start as if a job had. It answers whether it did; while a job is under way that
// one will know better. With a resume what was frozen goes on, with a pause what goes past that.
func (s *Store) Observe(
	ctx context.Context,
	id string,
	was, seen SandboxState,
) (changed bool, out []Dispatch, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		changed, out = false, nil
		box, err := locked(tx, id, lockSandbox)
		if err != nil || box.State != was || was == seen || box.EndedAt != nil {
			return err
		}
		var busy bool
		err = tx.Raw("SELECT "+underWay, map[string]any{"id": id}).Scan(&busy).Error
		if err != nil || busy {
			return err
		}
		changed = true
		return s.observed(tx, box, seen, &out)
	})
	return changed, out, err
}

func (s *Store) observed(tx *gorm.DB, box Sandbox, seen SandboxState, out *[]Dispatch) error {
	now := gorm.Expr("now()")
	set := map[string]any{
		"state": seen, "observed": seen, "observed_at": now, "last_active_at": gorm.Expr("greatest(last_active_at, now())"),
		"changed_by": "platform", "changed_job": nil,
		"desired": gorm.Expr(
			`CASE WHEN desired = 'deleted' OR EXISTS (SELECT 1 FROM jobs r WHERE r.sandbox_id = sandboxes.id AND r.kind = 'resume'
			AND r.state IN ('queued', 'running')) THEN desired ELSE ? END`,
			seen,
		),
	}
	if seen == SandboxPaused {
		set["paused_at"] = now
	} else {
		set["expires_at"] = gorm.Expr("now() + timeout_ms * interval '1 ms'")
	}
	if err := pg.Enqueue(pg.Build(tx).Model(&Sandbox{}).Where("id = ?", box.ID).Updates(set), nil); err != nil {
		return err
	}
	if err := thaw(tx, &box); err != nil {
		return err
	}
	if err := moveOn(tx, box.ID, seen, box.State); err != nil {
		return err
	}
	return dispatchLater(tx, box.TenantID, s.limits.Window, pg.Into(out))
}
