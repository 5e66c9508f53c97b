package models

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// Need is what a sandbox takes of its node's room.
type Need struct {
	CPUs     float64 // cores
	MemoryMB int64
	Pids     int64 // processes and threads
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

// BeginCreate records that a node is about to make the sandbox, before it exists. A sandbox that the node holds
// already, from an earlier attempt or because it was placed there, takes no more room. The errors of a node that does
// not get it are *PlacedError, when another node was given it and the job is to be given back, and *RoomError.
func (s *Store) BeginCreate(ctx context.Context, j Job, h Holder) (Sandbox, error) {
	var elsewhere error
	p := placing{holder: h}
	box, err := s.begin(ctx, j, p.look, func(tx *gorm.DB, box *Sandbox) error {
		switch elsewhere = nil; {
		case box.Ended():
			return box.EndedError()
		case h.Node == "" || box.NodeID != nil && *box.NodeID == h.Node:
			return nil
		}
		need, err := h.need(*box)
		if err != nil {
			return err
		}
		node, err := p.place(tx, need)
		if err != nil {
			return err
		}
		if node != h.Node {
			elsewhere = &PlacedError{Node: node}
		}
		box.NodeID, box.CPUs, box.MemoryMB, box.Pids = &node, need.CPUs, need.MemoryMB, need.Pids
		return pg.Enqueue(pg.Build(tx).Model(box).Select("node_id", "cpus", "memory_mb", "pids").Updates(box), nil)
	})
	return box, cmp.Or(err, elsewhere)
}

// candidates is how many other nodes a placing compares with its own. A few random ones spread sandboxes nearly as well
// as all of them do, and cost the same in a fleet of any size.
const candidates = 3

// placing chooses the node of one sandbox. Placings on one engine follow each other, those on different engines do not.
type placing struct {
	holder Holder
	loads  []NodeLoad
}

// look reads the holder and some other nodes with the next flush. From then on nobody else places a sandbox on the
// holder's engine.
func (p *placing) look(tx *gorm.DB) error {
	p.loads = nil
	if p.holder.Node == "" {
		return nil
	}
	if err := lockRoom(tx, p.holder.Node); err != nil {
		return err
	}
	return pg.Enqueue(nodeLoads(pg.Build(tx), `nodes.provider = @provider AND (nodes.id = @self OR nodes.id = ANY (ARRAY(
		SELECT id FROM nodes WHERE provider = @provider AND id <> @self AND lease_until > now() AND draining_at IS NULL AND NOT disk_low
		ORDER BY random() LIMIT @candidates)))`,
		map[string]any{"provider": p.holder.Provider, "self": p.holder.Node, "candidates": candidates}), pg.Into(&p.loads))
}

// lockRoom makes this transaction the only one that places sandboxes on the node's engine, from the next flush on.
func lockRoom(tx *gorm.DB, node string) error {
	return pg.Enqueue(
		pg.Build(tx).Raw(`SELECT pg_advisory_xact_lock(hashtextextended('room:' || coalesce(nullif(engine, ''), id), 0))
		FROM nodes WHERE id = ?`, node),
		nil,
	)
}

// place returns the node for a sandbox. Its error is a *RoomError.
func (p *placing) place(tx *gorm.DB, need Need) (string, error) {
	node, err := p.choose(tx, need)
	if !errors.As(err, new(*RoomError)) {
		return node, err
	}
	// None of these few has room. This is the only look at the whole fleet.
	p.loads = nil
	all := nodeLoads(tx, "nodes.provider = @provider", map[string]any{"provider": p.holder.Provider})
	if err := all.Scan(&p.loads).Error; err != nil {
		return "", err
	}
	return p.choose(tx, need)
}

// choose is place among the nodes that were read. Another node than the holder is read again once its room is locked,
// for others place sandboxes there as well.
func (p *placing) choose(tx *gorm.DB, need Need) (string, error) {
	for {
		node, err := choose(p.loads, p.holder.Node, need)
		if err != nil || node == p.holder.Node {
			return node, err
		}
		if err := lockRoom(tx, node); err != nil {
			return "", err
		}
		var now []NodeLoad
		load := nodeLoads(pg.Build(tx), "nodes.id = @id", map[string]any{"id": node})
		if err := pg.Enqueue(load, pg.Into(&now)); err != nil {
			return "", err
		}
		if err := pg.Flush(tx); err != nil {
			return "", err
		}
		if chosen, err := choose(now, "", need); err == nil {
			return chosen, nil
		}
		p.loads = slices.DeleteFunc(p.loads, func(l NodeLoad) bool { return l.ID == node })
	}
}

// choose says which node is to hold a sandbox: self, unless it has no room, is drained or is much fuller than another.
// Its error is a *RoomError.
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
		if !l.Fits(need) {
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
	Live bool // its lease has not ended
	Heir bool // it may be a drained node that was started again: see Wanted
	Load
	Running int `gorm:"-"` // jobs; only Nodes knows them
}

// Load is how many live sandboxes a node has, and what all on its engine take together, whichever nodes have them.
type Load struct {
	Sandboxes int
	CPUs      float64
	MemoryMB  int64
	Pids      int64
}

// Load says what a node holds.
func (s *Store) Load(ctx context.Context, node string) (Load, error) {
	return scanned[Load](s.db.WithContext(ctx).Raw("SELECT l.* FROM nodes, "+loadOf+" l WHERE nodes.id = ?", node))
}

// LargestRoom is the most that a live node of a provider can give one sandbox; 0 = no limit, or no node is alive.
func (s *Store) LargestRoom(ctx context.Context, provider string) (Bounds, error) {
	var b struct {
		CPUs     float64 `gorm:"column:cpus"`
		MemoryMB int64   `gorm:"column:memory_mb"`
		Pids     int64
	}
	err := s.db.WithContext(ctx).Raw(`SELECT CASE WHEN min(max_cpus) > 0 THEN max(max_cpus) ELSE 0 END AS cpus,
			CASE WHEN min(max_memory_mb) > 0 THEN max(max_memory_mb) ELSE 0 END AS memory_mb,
			CASE WHEN min(max_pids) > 0 THEN max(max_pids) ELSE 0 END AS pids
		FROM nodes WHERE provider = ? AND lease_until > now()`, provider).Scan(&b).Error
	return Bounds{CPUs: b.CPUs, MemoryMB: b.MemoryMB, Pids: b.Pids}, err
}

// ProviderState is how a provider is doing, by the word of its live workers.
type ProviderState struct {
	Provider  string
	Workers   int
	Away      int        // workers to which it does not answer
	AwaySince *time.Time // since when it answers none of them
	Reason    string     // the class of error, where it does not answer
	Attempts  int        // latest attempts at jobs that the figures are made of
	Failed    int        // of them, by the provider's fault
	CreateMS  int64      // median time of a create, of the slowest worker; 0 = not known
}

// ProviderStates returns how each provider is doing that has a live worker, by its name.
func (s *Store) ProviderStates(ctx context.Context) (map[string]ProviderState, error) {
	var rows []ProviderState
	err := s.db.WithContext(ctx).Raw(`SELECT provider, count(*) AS workers, count(away) AS away,
			CASE WHEN count(away) = count(*) THEN max(away) END AS away_since,
			coalesce(max(health->>'reason'), '') AS reason,
			coalesce(sum((health->>'attempts')::int), 0) AS attempts, coalesce(sum((health->>'failed')::int), 0) AS failed,
			coalesce(max((health->>'create_ms')::bigint), 0) AS create_ms
		FROM nodes, LATERAL (SELECT CASE WHEN health->'reason' IS NOT NULL
			THEN beat_at - coalesce((health->>'away_ms')::bigint, 0) * interval '1 ms' END AS away) a WHERE lease_until > now() GROUP BY provider`).Scan(&rows).Error
	live := map[string]ProviderState{}
	for _, r := range rows {
		live[r.Provider] = r
	}
	return live, err
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

// Fits says whether the node has room for what needs so much.
func (l NodeLoad) Fits(n Need) bool {
	return (l.MaxSandboxes == 0 || l.Sandboxes < l.MaxSandboxes) && (l.MaxCPUs == 0 || l.CPUs+n.CPUs <= l.MaxCPUs) &&
		(l.MaxMemoryMB == 0 || l.MemoryMB+n.MemoryMB <= l.MaxMemoryMB) && (l.MaxPids == 0 || l.Pids+n.Pids <= l.MaxPids)
}

// share is how full the node is, from 0 to 1, by what is scarcest.
func (l NodeLoad) share() (most float64) {
	for _, use := range []struct{ used, limit float64 }{
		{float64(l.Sandboxes), float64(l.MaxSandboxes)},
		{l.CPUs, l.MaxCPUs},
		{float64(l.MemoryMB), float64(l.MaxMemoryMB)},
		{float64(l.Pids), float64(l.MaxPids)},
	} {
		if use.limit > 0 {
			most = max(most, use.used/use.limit)
		}
	}
	return most
}

// loadOf is the Load of a row of nodes. Nodes of one engine share its machine.
const loadOf = `LATERAL (SELECT count(*) FILTER (WHERE s.node_id = nodes.id) AS sandboxes,
		coalesce(sum(s.cpus), 0) AS cpus, coalesce(sum(s.memory_mb), 0) AS memory_mb, coalesce(sum(s.pids), 0) AS pids
	FROM nodes o JOIN sandboxes s ON s.node_id = o.id
	WHERE s.ended_at IS NULL AND (o.id = nodes.id OR nodes.engine <> '' AND o.engine = nodes.engine AND o.provider = nodes.provider))`

// nodeLoads asks for the loads of some nodes, the oldest node first.
func nodeLoads(tx *gorm.DB, which string, args ...any) *gorm.DB {
	return tx.Raw(`SELECT nodes.*, nodes.lease_until > now() AS live, l.*, `+isHeir+` AS heir
		FROM nodes, `+loadOf+` l WHERE `+which+` ORDER BY nodes.started_at, nodes.id`, args...)
}
