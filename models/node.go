package models

import (
	"context"
	"encoding/json"
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
