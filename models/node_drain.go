package models

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"
)

// drainsKept is how long a dead node is remembered because it was drained.
const drainsKept = 30 * 24 * time.Hour

// isHeir says of a row of nodes whether it may be a drained node whose process was started again: it has the same name,
// or runs on the same machine where it has none, for the same engine, and began after the other was drained and heard
// of for the last time. Who is told to leave has no heir.
const isHeir = `(nodes.draining_at IS NULL AND EXISTS (SELECT 1 FROM nodes o WHERE ` + isFormer + `))`

const isFormer = `o.id <> nodes.id AND o.provider = nodes.provider AND o.engine = nodes.engine AND coalesce(nullif(o.name, ''), o.host) = coalesce(nullif(nodes.name, ''), nodes.host)
	AND o.name || o.host <> '' AND o.draining_at < nodes.started_at AND o.beat_at < nodes.started_at AND NOT o.leaving`

// Nodes lists all nodes that are known, the oldest first; dead ones stay for a minute, as long as they hold sandboxes,
// or as long as they are drained.
func (s *Store) Nodes(ctx context.Context) ([]NodeLoad, error) {
	var loads []NodeLoad
	if err := nodeLoads(s.db.WithContext(ctx), "true").Scan(&loads).Error; err != nil {
		return nil, err
	}
	var running []struct {
		NodeID string
		Jobs   int
	}
	err := s.db.WithContext(ctx).
		Raw("SELECT node_id, count(*) AS jobs FROM jobs WHERE state = 'running' GROUP BY node_id").
		Scan(&running).
		Error
	for _, r := range running {
		if i := slices.IndexFunc(loads, func(l NodeLoad) bool { return l.ID == r.NodeID }); i >= 0 {
			loads[i].Running = r.Jobs
		}
	}
	return loads, err
}

// Drain makes a node take no new sandboxes until Undrain, also when its process is started again. With leave its
// process is to end, and the mark with it. ErrNotFound if there is no such node alive.
func (s *Store) Drain(ctx context.Context, node string, leave bool) error {
	return s.tellNode(ctx, node, map[string]any{
		"draining_at": gorm.Expr("coalesce(draining_at, now())"), "leaving": gorm.Expr("leaving OR ?", leave),
	}, "lease_until > now()")
}

// Undrain lets a node, or what its process is started as next, take new sandboxes again. ErrNotFound if there is no
// such node alive or drained, or it is leaving.
func (s *Store) Undrain(ctx context.Context, node string) error {
	// One that has yet to learn whether it inherits a mark is not to.
	err := s.db.WithContext(ctx).
		Exec(`UPDATE nodes o SET draining_at = NULL FROM nodes WHERE nodes.id = ? AND nodes.draining_at IS NULL AND `+isFormer, node).
		Error
	if err != nil {
		return err
	}
	return s.tellNode(
		ctx,
		node,
		map[string]any{"draining_at": nil},
		"(lease_until > now() OR draining_at IS NOT NULL) AND NOT leaving",
	)
}

// inheritDrain gives a node the mark of one dead node that it may have been. Each mark has one heir; while it is not
// sure that the other is dead, which takes its farewell or a steady heir, there is none yet.
func (s *Store) inheritDrain(ctx context.Context, node string, steady bool) error {
	return s.db.WithContext(ctx).Exec(`WITH former AS (
			SELECT o.id, o.draining_at FROM nodes o, nodes WHERE nodes.id = @id AND `+isFormer+` AND o.lease_until <= now() AND (o.retired_at IS NOT NULL OR @steady)
			ORDER BY o.beat_at LIMIT 1 FOR UPDATE OF o SKIP LOCKED
		), taken AS (UPDATE nodes SET draining_at = NULL FROM former WHERE nodes.id = former.id)
		UPDATE nodes SET draining_at = former.draining_at FROM former WHERE nodes.id = @id`, map[string]any{"id": node, "steady": steady}).Error
}

func (s *Store) tellNode(ctx context.Context, node string, what map[string]any, only string) error {
	res := s.db.WithContext(ctx).Model(&Node{}).Where("id = ?", node).Where(only).Updates(what)
	return affected(res, ErrNotFound)
}
