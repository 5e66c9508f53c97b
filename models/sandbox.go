package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// SandboxState is what a sandbox is, as far as the platform knows.
type SandboxState string

// The states of a sandbox: creating → running ⇄ paused → deleting → deleted, and failed and lost.
const (
	SandboxCreating SandboxState = "creating"
	SandboxRunning  SandboxState = "running"
	SandboxPaused   SandboxState = "paused"
	SandboxDeleting SandboxState = "deleting"
	SandboxDeleted  SandboxState = "deleted"
	SandboxFailed   SandboxState = "failed" // was never made
	SandboxLost     SandboxState = "lost"   // died under us
)

// Sandbox is one place to run code in, from its wish to its end.
type Sandbox struct {
	ID              string `gorm:"primaryKey"`
	TenantID        string
	Key             *string
	Provider        string
	Template        *string
	Image           string
	NodeID          *string
	CPUs            float64 `gorm:"column:cpus"` // what it takes of its node's room, like MemoryMB and Pids
	MemoryMB        int64   `gorm:"column:memory_mb"`
	Pids            int64
	ProviderRef     *string
	ProviderKey     *string // the tenant's secret that it is made with; empty = the operator's key, nil = not decided
	State           SandboxState
	Desired         string // running, paused or deleted
	Observed        *string
	ObservedAt      *time.Time
	Spec            json.RawMessage   `gorm:"type:jsonb"`
	Egress          json.RawMessage   `gorm:"type:jsonb"` // where it may connect to; nil = nowhere
	Labels          map[string]string `gorm:"serializer:json;type:jsonb"`
	NextSeq         int64
	TimeoutMS       int64  `gorm:"column:timeout_ms"`
	OnTimeout       string // delete or pause
	OnLost          string // OnLostRecreate, or empty
	IdleTimeoutMS   int64  `gorm:"column:idle_timeout_ms"`
	AutoResume      bool   // traffic and jobs that find it paused resume it
	ExpiresAt       time.Time
	LastActiveAt    time.Time
	EndReason       *string
	EndActor        *string
	MaxLifetimeMS   int64 `gorm:"column:max_lifetime_ms"`   // 0 = no limit
	PausedTimeoutMS int64 `gorm:"column:paused_timeout_ms"` // 0 = never
	PausedAt        *time.Time
	PauseFailedAt   *time.Time // when a pause last ended that did not succeed
	Replaces        *string    // the lost sandbox in whose place it is
	ReplacedBy      *string
	Recreations     int    // how many in a row were lost soon after their start
	ChangedBy       string // who brought its state about
	ChangedJob      *string
	MCPRevoked      bool      `gorm:"column:mcp_revoked"`    // the grant of its MCP server's port is
	VSCodeRevoked   bool      `gorm:"column:vscode_revoked"` // likewise, of its editor's
	UserID          *string   // whose login, key or schedule made it
	CreatedAt       time.Time `gorm:"autoCreateTime:false"`
	StartedAt       *time.Time
	EndedAt         *time.Time

	// Reuse, of a new one: a live sandbox of the tenant that has all its Labels takes its place, the newest if there are
	// several.
	Reuse bool `gorm:"-"`
}

// has says whether the sandbox is live, of a tenant, and has all of the labels.
func (b Sandbox) has(tenantID string, labels map[string]string) bool {
	for k, v := range labels {
		if got, ok := b.Labels[k]; !ok || got != v {
			return false
		}
	}
	return b.TenantID == tenantID && !b.Ended()
}

// Ended says whether the sandbox takes no work any more.
func (b Sandbox) Ended() bool {
	return b.EndedAt != nil || b.State == SandboxDeleting
}

// DiesAt is when the sandbox has lived as long as it may; nil = that is not limited, or it has not started.
func (b Sandbox) DiesAt() *time.Time {
	if b.MaxLifetimeMS == 0 || b.StartedAt == nil {
		return nil
	}
	return new(b.StartedAt.Add(time.Duration(b.MaxLifetimeMS) * time.Millisecond))
}

// startTime is how long a sandbox has for its start, also where its timeout is shorter. A busy queue does not end it.
const startTime = 10 * time.Minute

// expiry is when the timeout ends of which the sandbox is told now. The end of its start sets it anew.
func (b Sandbox) expiry(now time.Time, timeout time.Duration) time.Time {
	ends := now.Add(timeout)
	if least := b.CreatedAt.Add(startTime); b.State == SandboxCreating && ends.Before(least) {
		return least
	}
	return ends
}

// EndedError says that the sandbox has ended, and why.
func (b Sandbox) EndedError() *EndedError {
	e := &EndedError{Sandbox: b.ID, State: b.State, EndedAt: b.EndedAt}
	if b.EndReason != nil {
		e.Reason = *b.EndReason
	}
	if b.ReplacedBy != nil {
		e.ReplacedBy = *b.ReplacedBy
	}
	return e
}

// Sandbox returns a tenant's sandbox, or ErrNotFound.
func (s *Store) Sandbox(ctx context.Context, tenantID, id string) (Sandbox, error) {
	return takeOne[Sandbox](s.db.WithContext(ctx).Where("tenant_id = ? AND id = ?", tenantID, id))
}

// SandboxFilter selects sandboxes in List; empty fields match everything.
type SandboxFilter struct {
	State    SandboxState
	States   []SandboxState // any of them
	Live     bool           // it has not ended
	Provider string
	Key      string
	Labels   map[string]string // all must match
	Template string            // its name, or the image of sandboxes that have none
	Since    time.Time         // those that started then or later
	Before   string            // the last id of the page before
	Limit    int
}

// Start is a sandbox's place in a list by the time of the first start.
type Start struct {
	At time.Time
	ID string
}

// Sandboxes lists a tenant's sandboxes, newest first.
func (s *Store) Sandboxes(ctx context.Context, tenantID string, f SandboxFilter) ([]Sandbox, error) {
	q := s.filtered(ctx, tenantID, f)
	return findAll[Sandbox](whereSet(q, "id < ?", f.Before).Order("id DESC").Limit(f.Limit))
}

// SandboxesByStart lists a tenant's sandboxes that have started and not ended, by the time of that: oldest or newest
// first, behind the place after, or from the first one on where that is empty. Limit 0 means all, and Before nothing.
func (s *Store) SandboxesByStart(
	ctx context.Context,
	tenantID string,
	f SandboxFilter,
	oldest bool,
	after Start,
) ([]Sandbox, error) {
	q := s.filtered(ctx, tenantID, f)
	behind, order := "(started_at, id) < (?, ?)", "started_at DESC, id DESC"
	if oldest {
		behind, order = "(started_at, id) > (?, ?)", "started_at, id"
	}
	if after.ID != "" {
		q = q.Where(behind, after.At, after.ID)
	}
	if f.Limit > 0 {
		q = q.Limit(f.Limit)
	}
	return findAll[Sandbox](q.Where("started_at IS NOT NULL AND ended_at IS NULL").Order(order))
}

// CountSandboxes returns how many sandboxes a list without pages would have.
func (s *Store) CountSandboxes(ctx context.Context, tenantID string, f SandboxFilter) (int, error) {
	return countOf(s.filtered(ctx, tenantID, f).Model(&Sandbox{}))
}

func (s *Store) filtered(ctx context.Context, tenantID string, f SandboxFilter) *gorm.DB {
	q := s.db.WithContext(ctx).Where("tenant_id = ?", tenantID)
	q = whereSet(q, "state = ?", f.State)
	q = whereSet(q, "provider = ?", f.Provider)
	q = whereSet(q, "key = ?", f.Key)
	if len(f.States) > 0 {
		q = q.Where("state IN ?", f.States)
	}
	if f.Live {
		q = q.Where("ended_at IS NULL")
	}
	q = whereSet(q, "coalesce(template, image) = ?", f.Template)
	q = whereSet(q, "started_at >= ?", f.Since)
	if len(f.Labels) > 0 {
		q = q.Where("labels @> ?::jsonb", string(must(json.Marshal(f.Labels))))
	}
	return q
}

// LiveSandboxes returns sandboxes of all tenants that have not ended.
func (s *Store) LiveSandboxes(ctx context.Context, limit int) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Where("ended_at IS NULL").Order("id").Limit(limit))
}

// lockSandbox takes the row lock that orders all changes to a sandbox and its jobs, with the next flush. A sandbox that
// does not exist leaves box as it was.
func lockSandbox(tx *gorm.DB, id string, box *Sandbox) error {
	return pg.Enqueue(
		pg.Build(tx).Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Where("id = ?", id).Find(box),
		pg.Into(box),
	)
}

// lockFor is lockSandbox for an attempt at a job, of which it says whether it is still its own. It asks that under the
// lock, with a statement of its own: a job that has ended while the lock was waited for changes nothing any more.
func lockFor(tx *gorm.DB, j Job, found *owned) error {
	if err := lockSandbox(tx, j.SandboxID, &found.Sandbox); err != nil {
		return err
	}
	const ours = "SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ? AND state = 'running' AND "
	return pg.Enqueue(pg.Build(tx).Raw(ours+fence+") AS ours", j.ID, j.Attempt), pg.Into(&found.still))
}

type owned struct {
	Sandbox
	still struct{ Ours bool }
}

func (o owned) err() error {
	switch {
	case o.ID == "":
		return ErrNotFound
	case !o.still.Ours:
		return ErrStale
	}
	return nil
}

// lockActive is lockSandbox for who ends a job, which counts as activity.
func lockActive(tx *gorm.DB, id string, box *Sandbox) error {
	return pg.Enqueue(
		pg.Build(tx).
			Model(box).
			Clauses(clause.Returning{}).
			Where("id = ?", id).
			Update("last_active_at", gorm.Expr("greatest(last_active_at, now())")),
		pg.Into(box),
	)
}

// locked carries out a lock at once.
func locked(tx *gorm.DB, id string, lock func(*gorm.DB, string, *Sandbox) error) (box Sandbox, err error) {
	if err = lock(tx, id, &box); err == nil {
		err = pg.Flush(tx)
	}
	if err == nil && box.ID == "" {
		err = ErrNotFound
	}
	return box, err
}

// wishFor is what a job of the kind makes of a sandbox; empty = nothing that is wished for.
func wishFor(kind string) string {
	switch kind {
	case KindDelete:
		return DesiredDeleted
	case KindPause:
		return DesiredPaused
	case KindResume:
		return DesiredRunning
	}
	return ""
}

// wish writes down what the submission wants the sandbox to become.
func (b *batch) wish(p *submission, box *Sandbox) error {
	wish := wishFor(p.Jobs[len(p.Jobs)-1].Kind)
	if wish == "" || box.Desired == DesiredDeleted {
		return nil
	}
	box.Desired = wish
	return pg.Enqueue(pg.Build(b.tx).Model(box).Update("desired", wish), nil)
}

// settleWish follows up on the end of a job that had come with a wish, however it ended: what is wished for then is
// what the newest open job is to do, apart from pauses that a later resume came before, and where there is none, what
// is. Who wants the sandbox deleted still does so when the delete has failed, and takes it back only by cancelling
// that.
func settleWish(tx *gorm.DB, box *Sandbox, c Transition) error {
	back := c.kind == KindDelete && c.state == Cancelled
	if c.kind != KindPause && c.kind != KindResume && !back || box.EndedAt != nil {
		return nil
	}
	return pg.Enqueue(pg.Build(tx).Exec(`UPDATE sandboxes SET
			desired = coalesce(
				(SELECT CASE kind WHEN 'delete' THEN 'deleted' WHEN 'pause' THEN 'paused' ELSE 'running' END FROM jobs p
					WHERE sandbox_id = sandboxes.id AND state IN ('queued', 'running') AND kind IN ('delete', 'pause', 'resume')
					  AND NOT (kind = 'pause' AND `+overtaken+`)
					ORDER BY seq DESC LIMIT 1),
				CASE state WHEN 'paused' THEN 'paused' ELSE 'running' END),
			pause_failed_at = CASE WHEN @failed THEN now() ELSE pause_failed_at END
		WHERE id = @id AND ended_at IS NULL AND state <> 'deleting' AND (desired <> 'deleted' OR @back)`,
		map[string]any{
			"id":     box.ID,
			"back":   back,
			"failed": c.kind == KindPause && c.state != Succeeded && !c.Overtaken,
		}),
		nil)
}
