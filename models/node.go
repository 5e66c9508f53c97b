package models

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Node is a worker process. It holds sandboxes as long as its lease lasts.
type Node struct {
	ID         string `gorm:"primaryKey"`
	Provider   string
	Engine     string // where its sandboxes live, such as a Docker engine's id
	Slots      int
	Gateway    string // URL of its gateway; empty = it has none
	Host       string // the machine's name
	Name       string // what it is known by when it is started again; empty = by its machine
	LeaseUntil time.Time
	StartedAt  time.Time `gorm:"default:now()"`

	// How many sandboxes it holds at most, and what those on its engine may take together; 0 = no limit.
	MaxSandboxes int
	MaxCPUs      float64 `gorm:"column:max_cpus"`
	MaxMemoryMB  int64   `gorm:"column:max_memory_mb"`
	MaxPids      int64

	Disk       Disk       `gorm:"embedded"`
	Health     NodeHealth `gorm:"serializer:json;type:jsonb"`
	DrainingAt *time.Time // it takes no new sandboxes
	Leaving    bool       // its process is to end
	BeatAt     *time.Time // when it was last heard of

	SteadySince time.Time  `gorm:"default:now()"` // it has been heard of without a gap since then
	RetiredAt   *time.Time // it has said farewell
}

// Disk is what a node's sandboxes and images lie on.
type Disk struct {
	FreeMB int64 `gorm:"column:disk_free_mb"` // 0 = not known
	Low    bool  `gorm:"column:disk_low"`     // too little for new sandboxes
}

// NodeHealth is how a node's provider is doing, by the node's last attempts at jobs.
type NodeHealth struct {
	Reason   string `json:"reason,omitempty"`  // the class of error, while it is away; empty = it answers
	AwayMS   int64  `json:"away_ms,omitempty"` // for how long it has been away
	Attempts int    `json:"attempts"`          // that the figures are made of
	Failed   int    `json:"failed"`            // of them, by the provider's fault
	CreateMS int64  `json:"create_ms"`         // median of the creates among them; 0 = there was none
}

// Register makes a node known, extends its lease, and returns what operators want of it. Nodes that beat three times a
// lease and miss none of another's find a gap of their own where the other's lease may have ended without its fault:
// they were all away from the database for two thirds of a lease, or its clock was set forth.
func (s *Store) Register(ctx context.Context, n Node, lease time.Duration) (NodeOrders, error) {
	var w NodeOrders
	err := s.db.WithContext(ctx).
		Raw(`INSERT INTO nodes (id, provider, engine, slots, gateway, host, name, max_sandboxes, max_cpus, max_memory_mb, max_pids, disk_free_mb, disk_low, health, beat_at, lease_until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?::jsonb, now(), now() + ?)
		ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, beat_at = excluded.beat_at,
		disk_free_mb = excluded.disk_free_mb, disk_low = excluded.disk_low, health = excluded.health,
			steady_since = CASE WHEN nodes.retired_at IS NULL AND nodes.beat_at BETWEEN now() - ? AND now() THEN nodes.steady_since ELSE now() END, retired_at = NULL
		RETURNING draining_at IS NOT NULL AS draining, leaving, `+isHeir+` AS heir, steady_since <= now() - ? AS steady`,
			n.ID, n.Provider, n.Engine, n.Slots, n.Gateway, n.Host, n.Name, n.MaxSandboxes, n.MaxCPUs, n.MaxMemoryMB, n.MaxPids,
			n.Disk.FreeMB, n.Disk.Low, string(must(json.Marshal(n.Health))), milliseconds(lease),
			milliseconds(lease*2/3), milliseconds(lease)).
		Scan(&w).
		Error
	if err == nil && w.Heir {
		w.Draining, err = true, s.inheritDrain(ctx, n.ID, w.Steady)
	}
	return w, err
}

// NodeOrders is what operators want of a node.
type NodeOrders struct {
	Draining bool // takes no new sandboxes
	Leaving  bool // its process ends
	Heir     bool // it may be a drained node that was started again
	Steady   bool // it has been heard of for a lease without a gap: who was not heard of in it is dead
}

// Rank says which of the live nodes of its engine that are not drained a node is, from 0 on, and how many there are.
func (s *Store) Rank(ctx context.Context, n Node) (rank, nodes int, err error) {
	var r struct{ Before, Others int }
	err = s.db.WithContext(ctx).Raw(`SELECT count(*) FILTER (WHERE id < @id) AS before, count(*) AS others FROM nodes
		WHERE provider = @provider AND engine = @engine AND id <> @id AND lease_until > now() AND draining_at IS NULL`,
		map[string]any{"id": n.ID, "provider": n.Provider, "engine": n.Engine}).Scan(&r).Error
	return r.Before, r.Others + 1, err
}

// Retire ends a node's lease and those of its jobs, so that others need not wait for them.
func (s *Store) Retire(ctx context.Context, node string) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		now := gorm.Expr("now()")
		ended := map[string]any{"lease_until": now, "retired_at": now}
		if err := tx.Model(&Node{}).Where("id = ?", node).Updates(ended).Error; err != nil {
			return err
		}
		return tx.Model(&Job{}).Where("node_id = ? AND state = 'running'", node).
			Update("lease_until", gorm.Expr("now()")).Error
	})
}

// LastExecs returns those commands in the sandboxes, of none that runs in the background, whose ends nodes have written
// that died soon after, or soon before the sandbox was paused, since when nobody could say anything to its guest.
func (s *Store) LastExecs(ctx context.Context, sandboxes []string) ([]Job, error) {
	return scanned[[]Job](s.db.WithContext(ctx).
		Raw(`SELECT j.id, j.sandbox_id FROM nodes n JOIN jobs j ON j.node_id = n.id AND j.finished_at > n.beat_at - interval '1 minute'
		WHERE n.lease_until < now() AND j.sandbox_id = ANY (?::text[]) AND j.kind = 'exec' AND j.args->'background' IS DISTINCT FROM 'true'::jsonb
		UNION SELECT j.id, j.sandbox_id FROM sandboxes s JOIN jobs j ON j.sandbox_id = s.id AND j.finished_at > s.paused_at - interval '1 minute'
		WHERE s.id = ANY (?::text[]) AND s.state = 'paused' AND j.kind = 'exec' AND j.args->'background' IS DISTINCT FROM 'true'::jsonb`,
			idArray(sandboxes), idArray(sandboxes)))
}

// DeadNodes returns nodes that had died longer than age before the moment at, and hold nothing.
func (s *Store) DeadNodes(ctx context.Context, at time.Time, age time.Duration) ([]string, error) {
	var ids []string
	err := s.deadNodes(ctx, at.Add(-age)).Pluck("id", &ids).Error
	return ids, err
}

// PruneNodes forgets those of the nodes that are still dead.
func (s *Store) PruneNodes(ctx context.Context, ids []string, at time.Time, age time.Duration) error {
	return s.deadNodes(ctx, at.Add(-age)).Where("id IN ?", ids).Delete(&Node{}).Error
}

func (s *Store) deadNodes(ctx context.Context, since time.Time) *gorm.DB {
	return s.db.WithContext(ctx).Model(&Node{}).Where("lease_until < ?", since).
		Where("draining_at IS NULL OR leaving OR lease_until < now() - ?", milliseconds(drainsKept)).
		Where("NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.node_id = nodes.id AND s.ended_at IS NULL)")
}

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
