package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// OnLostRecreate is the wish that a lost sandbox is replaced by a new one of its kind.
const OnLostRecreate = "recreate"

const (
	// maxRecreations is how many sandboxes in a row may be lost soon after their start before nobody makes another.
	maxRecreations = 5
	// settled is how long a sandbox has lived whose loss does not count for that.
	settled = 10 * time.Minute
)

// toRecreate selects lost sandboxes in whose place another is to be made, and whose rest is over.
const toRecreate = `state = 'lost' AND on_lost = 'recreate' AND replaced_by IS NULL AND recreations < ?
	AND ended_at > now() - interval '1 hour' AND (recreate_at IS NULL OR recreate_at <= now())`

// DueRecreations returns lost sandboxes in whose place another is to be made, the first lost first.
func (s *Store) DueRecreations(ctx context.Context, limit int) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Where(toRecreate, maxRecreations).Order("ended_at").Limit(limit))
}

// RestRecreation leaves a lost sandbox alone for a while, because of the reason given, which an event tells once.
func (s *Store) RestRecreation(ctx context.Context, id string, rest time.Duration, reason string) error {
	return s.restRecreations(ctx, "id = ?", id, rest, reason)
}

// RestRecreations does that with all of a tenant's: what keeps one back keeps back the others, too, and what comes
// behind them has its turn.
func (s *Store) RestRecreations(ctx context.Context, tenantID string, rest time.Duration, reason string) error {
	return s.restRecreations(ctx, "tenant_id = ?", tenantID, rest, reason)
}

func (s *Store) restRecreations(ctx context.Context, which, value string, rest time.Duration, reason string) error {
	return s.db.WithContext(ctx).Model(&Sandbox{}).Where(toRecreate, maxRecreations).Where(which, value).
		Updates(map[string]any{"recreate_at": gorm.Expr("now() + ?", milliseconds(rest)), "recreate_refusal": reason}).Error
}

// Replacement is the row of a sandbox that takes the place of a lost one: what was wished for the one, without its
// fate.
func (b Sandbox) Replacement() *Sandbox {
	again := &Sandbox{
		ID: NewID("sb"), TenantID: b.TenantID, Key: b.Key, Provider: b.Provider, Template: b.Template, Image: b.Image,
		State: SandboxCreating, Desired: DesiredRunning, Spec: b.Spec, Egress: b.Egress, Labels: b.Labels,
		TimeoutMS: b.TimeoutMS, OnTimeout: b.OnTimeout, IdleTimeoutMS: b.IdleTimeoutMS, AutoResume: b.AutoResume,
		MaxLifetimeMS: b.MaxLifetimeMS, PausedTimeoutMS: b.PausedTimeoutMS, OnLost: b.OnLost, Replaces: &b.ID,
		CPUs: b.CPUs, MemoryMB: b.MemoryMB, UserID: b.UserID,
	}
	if b.StartedAt == nil || b.EndedAt == nil || b.EndedAt.Sub(*b.StartedAt) < settled {
		again.Recreations = b.Recreations + 1
	}
	return again
}

// takePlace writes down that the sandbox by takes the place of the lost one that the submission's replaces, if any.
// Where another has done so, the submission's error is ErrNotDue.
func (b *batch) takePlace(p *submission, by string) error {
	if p.New.Replaces == nil {
		return nil
	}
	res := b.tx.Model(&Sandbox{}).
		Where("id = ? AND state = 'lost' AND replaced_by IS NULL", *p.New.Replaces).
		Update("replaced_by", by)
	if res.Error == nil && res.RowsAffected == 0 {
		p.err = ErrNotDue
	}
	return res.Error
}
