package models

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// patience is how many leases a node leaves sandboxes to others that have more room for them.
const patience = 3

// Adopt gives node live sandboxes of dead nodes on the same engine and sends their waiting jobs its way. Of nodes that
// have not said farewell it takes them only when it is steady. It leaves those to the other nodes of the engine which
// these have more room for, but not for long; what fits nowhere it takes all the same.
func (s *Store) Adopt(ctx context.Context, node Node, steady bool) (adopted []string, out []Dispatch, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		adopted, out = nil, nil
		boxes, err := orphaned(tx, node, steady)
		if err != nil || len(boxes) == 0 {
			return err
		}
		var loads []NodeLoad
		provider := map[string]any{"provider": node.Provider}
		if err := nodeLoads(tx, "nodes.provider = @provider", provider).Scan(&loads).Error; err != nil {
			return err
		}
		tenants := map[string]bool{}
		for _, b := range newAdopter(node, loads).pick(boxes) {
			adopted, tenants[b.TenantID] = append(adopted, b.ID), true
		}
		if len(adopted) == 0 {
			return nil
		}
		if err := tx.Model(&Sandbox{}).Where("id IN ?", adopted).Update("node_id", node.ID).Error; err != nil {
			return err
		}
		err = tx.Model(&Job{}).Where("sandbox_id IN ? AND state = 'queued'", adopted).Update("dispatched_at", nil).Error
		if err != nil {
			return err
		}
		out, err = s.dispatchTenants(tx, tenants)
		return err
	})
	return adopted, out, err
}

// orphaned locks the live sandboxes of dead nodes on the node's engine, but those that another transaction has locked.
func orphaned(tx *gorm.DB, node Node, steady bool) (boxes []Sandbox, err error) {
	return findAll[Sandbox](
		tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).Select("id", "tenant_id", "node_id").
			Where(`ended_at IS NULL AND node_id IN
			(SELECT id FROM nodes WHERE provider = ? AND engine = ? AND lease_until < now() AND (retired_at IS NOT NULL OR ?))`,
				node.Provider, node.Engine, steady).
			Order("id"),
	)
}

// adopter decides which sandboxes a node takes over.
type adopter struct {
	self   *NodeLoad
	takers []*NodeLoad     // the nodes of the engine that take sandboxes, self among them unless it is drained
	tired  map[string]bool // dead nodes whose sandboxes have waited for others long enough
}

func newAdopter(node Node, loads []NodeLoad) adopter {
	a := adopter{tired: map[string]bool{}}
	for i := range loads {
		l := &loads[i]
		if l.ID == node.ID {
			a.self = l
		}
		if l.Engine == node.Engine && l.State() == "live" {
			a.takers = append(a.takers, l)
		}
	}
	if a.self == nil || a.self.BeatAt == nil {
		return a
	}
	since := a.self.BeatAt.Add(-patience * a.self.LeaseUntil.Sub(*a.self.BeatAt))
	for _, l := range loads {
		a.tired[l.ID] = l.LeaseUntil.Before(since) && a.self.SteadySince.Before(since)
	}
	return a
}

// pick returns the sandboxes that the node takes. They are on its engine, so what they take there stays what it was.
func (a adopter) pick(boxes []Sandbox) (mine []Sandbox) {
	for _, b := range boxes {
		l := a.best()
		if l == nil || a.tired[*b.NodeID] {
			l = a.self
		}
		if l == nil || l == a.self {
			mine = append(mine, b)
		}
		if l != nil {
			l.Sandboxes++
		}
	}
	return mine
}

// best is the node that is to hold one more sandbox: the emptiest of those that have room for it, or of all where none
// has; self where that is one of them. Nil if no node takes any.
func (a adopter) best() (best *NodeLoad) {
	better := func(l *NodeLoad) bool {
		switch fits := l.Fits(Need{}); {
		case best == nil:
			return true
		case fits != best.Fits(Need{}):
			return fits
		case l.share() != best.share():
			return l.share() < best.share()
		}
		return l == a.self
	}
	for _, l := range a.takers {
		if better(l) {
			best = l
		}
	}
	return best
}

func (s *Store) dispatchTenants(tx *gorm.DB, tenants map[string]bool) ([]Dispatch, error) {
	var all []Dispatch
	for t := range tenants {
		out, err := dispatchReady(tx, t, s.limits.Window)
		if err != nil {
			return nil, err
		}
		all = append(all, out...)
	}
	return all, nil
}
