package models

import (
	"context"

	"gorm.io/gorm"
)

// Need is what a sandbox takes of its node's room.
type Need struct {
	CPUs     float64 // cores
	MemoryMB int64
}

// Holder is a node that is about to hold a sandbox. The zero value is that of providers whose sandboxes live on none.
type Holder struct {
	Node     string
	Provider string
	Need     func(Sandbox) (Need, error) // nil = nothing that counts
}

// PlacedError says that another node has been given the sandbox.
type PlacedError struct{ Node string }

func (e *PlacedError) Error() string { return "worker " + e.Node + " has more room for the sandbox" }

// RoomError says that no node takes the sandbox.
type RoomError struct {
	Nodes    int // that are alive
	Draining int // of these, those that operators drain
	DiskLow  int // of these, others whose disks are nearly full
}

func (e *RoomError) Error() string { return "no node has room for the sandbox" }

// aside is how much fuller than the emptiest node, as a share of what it may hold, a node may be that takes a sandbox
// all the same: it saves a trip through the queue.
const aside = 0.25

func (h Holder) need(box Sandbox) (Need, error) {
	if h.Need == nil {
		return Need{}, nil
	}
	return h.Need(box)
}

// lookForPlaces reads the nodes of a provider with the next flush. One transaction at a time places sandboxes of it.
func lookForPlaces(tx *gorm.DB, provider string, loads *[]NodeLoad) error {
	err := later(dry(tx).Raw("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", "place:"+provider), nil)
	if err != nil {
		return err
	}
	return later(nodeLoads(dry(tx), provider), into(loads))
}

// choose says which node is to hold a sandbox: self, unless it has no room, is drained or is much fuller than another. Its
// error is a *RoomError.
func choose(loads []NodeLoad, self string, need Need) (string, error) {
	var own, best *NodeLoad
	full := &RoomError{}
	for i := range loads {
		l := &loads[i]
		if !l.Live {
			continue
		}
		full.Nodes++
		if l.DrainingAt != nil || l.Heir {
			full.Draining++
			continue
		}
		if l.Disk.Low {
			full.DiskLow++
			continue
		}
		if !l.fits(need) {
			continue
		}
		if l.ID == self {
			own = l
		}
		if best == nil || l.share() < best.share() {
			best = l
		}
	}
	switch {
	case best == nil:
		return "", full
	case own != nil && own.share() <= best.share()+aside:
		return own.ID, nil
	}
	return best.ID, nil
}

// NodeLoad is a node with what it holds.
type NodeLoad struct {
	Node
	Live      bool // its lease has not ended
	Heir      bool // it may be a drained node that was started again: see Wanted
	Sandboxes int
	CPUs      float64 // of its sandboxes, together
	MemoryMB  int64   // likewise
	Running   int     // jobs
}

// Load is what a node's live sandboxes are and take, together.
type Load struct {
	Sandboxes int
	CPUs      float64
	MemoryMB  int64
}

// Load says what a node holds.
func (s *Store) Load(ctx context.Context, node string) (Load, error) {
	var l Load
	err := s.db.WithContext(ctx).Raw(`SELECT count(*) AS sandboxes, coalesce(sum(cpus), 0) AS cpus, coalesce(sum(memory_mb), 0) AS memory_mb
		FROM sandboxes WHERE node_id = ? AND ended_at IS NULL`, node).Scan(&l).Error
	return l, err
}

// State is live, draining, leaving or dead.
func (l NodeLoad) State() string {
	switch {
	case !l.Live:
		return "dead"
	case l.Leaving:
		return "leaving"
	case l.DrainingAt != nil, l.Heir:
		return "draining"
	}
	return "live"
}

func (l NodeLoad) fits(n Need) bool {
	return (l.MaxSandboxes == 0 || l.Sandboxes < l.MaxSandboxes) && (l.MaxCPUs == 0 || l.CPUs+n.CPUs <= l.MaxCPUs) &&
		(l.MaxMemoryMB == 0 || l.MemoryMB+n.MemoryMB <= l.MaxMemoryMB)
}

// share is how full the node is, from 0 to 1, by what is scarcest.
func (l NodeLoad) share() (most float64) {
	for _, use := range []struct{ used, limit float64 }{
		{float64(l.Sandboxes), float64(l.MaxSandboxes)}, {l.CPUs, l.MaxCPUs}, {float64(l.MemoryMB), float64(l.MaxMemoryMB)},
	} {
		if use.limit > 0 {
			most = max(most, use.used/use.limit)
		}
	}
	return most
}

// nodeLoads asks for the nodes of a provider, or of all where it is empty, the oldest first.
func nodeLoads(tx *gorm.DB, provider string) *gorm.DB {
	return tx.Raw(`
		SELECT nodes.*, nodes.lease_until > now() AS live, s.*, `+isHeir+` AS heir,
			(SELECT count(*) FROM jobs j WHERE j.node_id = nodes.id AND j.state = 'running') AS running
		FROM nodes, LATERAL (SELECT count(*) AS sandboxes, coalesce(sum(cpus), 0) AS cpus, coalesce(sum(memory_mb), 0) AS memory_mb
			FROM sandboxes WHERE node_id = nodes.id AND ended_at IS NULL) s
		WHERE @provider IN ('', nodes.provider) ORDER BY nodes.started_at, nodes.id`, map[string]any{"provider": provider})
}
