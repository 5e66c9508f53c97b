package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// MarkLost ends a running or paused sandbox of which its provider has nothing any more, for the reason given. ErrNotDue
// means that it was ended or moved to another engine meanwhile.
func (s *Store) MarkLost(ctx context.Context, id string, on Node, reason string) (FinishEffects, error) {
	return s.lose(ctx, id, reason, func(tx *gorm.DB, box Sandbox) (bool, error) {
		if box.State != SandboxRunning && box.State != SandboxPaused || box.Desired == DesiredDeleted {
			return false, nil
		}
		return holdsOn(tx, box, on)
	})
}

// holdsOn says whether a sandbox is held by some node of this one's engine.
func holdsOn(tx *gorm.DB, box Sandbox, on Node) (bool, error) {
	if box.NodeID == nil {
		return on.Engine == "" && box.Provider == on.Provider, nil
	}
	var n int64
	err := tx.Model(&Node{}).
		Where("id = ? AND provider = ? AND engine = ?", *box.NodeID, on.Provider, on.Engine).
		Count(&n).
		Error
	return n > 0, err
}

// deserted selects sandboxes whose engine had no worker at a moment, and none for a while before; it takes the
// beginning of that while and the moment. What has happened since counts for nothing: the database may have been away,
// or its clock was set.
const deserted = `ended_at IS NULL AND node_id IN (SELECT n.id FROM nodes n WHERE n.lease_until < ? AND NOT EXISTS
	(SELECT 1 FROM nodes o WHERE o.provider = n.provider AND o.engine = n.engine AND o.lease_until >= ?))`

// Deserted returns sandboxes in any of the states whose engine had had no worker for longer than age at the moment at.
func (s *Store) Deserted(
	ctx context.Context,
	at time.Time,
	age time.Duration,
	limit int,
	states ...SandboxState,
) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Where(deserted, at.Add(-age), at).Where("state IN ?", states).
		Order("id").Limit(limit))
}

// LoseDeserted ends a sandbox whose engine had had no worker for longer than age at the moment at, and has none that
// came since, whatever was going on in it. What is left of it on the engine is removed when a worker comes back there.
func (s *Store) LoseDeserted(ctx context.Context, id string, at time.Time, age time.Duration) (FinishEffects, error) {
	const reason = "its engine had no worker for longer than LOST_AFTER"
	return s.lose(ctx, id, reason, func(tx *gorm.DB, box Sandbox) (bool, error) {
		var n int64
		err := tx.Model(&Sandbox{}).Where("id = ?", box.ID).Where(deserted, at.Add(-age), at).Count(&n).Error
		return n > 0 && box.State != SandboxCreating, err
	})
}

func (s *Store) lose(
	ctx context.Context,
	id, reason string,
	due func(*gorm.DB, Sandbox) (bool, error),
) (FinishEffects, error) {
	return inSandbox(ctx, s.db, id, lockSandbox, func(tx *gorm.DB, box *Sandbox) (none FinishEffects, _ error) {
		if box.EndedAt != nil {
			return none, ErrNotDue
		}
		if ok, err := due(tx, *box); err != nil || !ok {
			return none, orNotDue(err)
		}
		return s.loseLocked(tx, box, reason)
	})
}

func orNotDue(err error) error {
	if err == nil {
		return ErrNotDue
	}
	return err
}

// loseLocked ends the sandbox with all jobs but those that a living worker runs: it learns of the loss by itself.
func (s *Store) loseLocked(tx *gorm.DB, box *Sandbox, reason string) (FinishEffects, error) {
	gone, err := endSilent(tx, box.ID, JobError{Code: "sandbox_lost", Message: "the sandbox was lost: " + reason})
	if err != nil {
		return FinishEffects{}, err
	}
	now := gorm.Expr("now()")
	more, err := finalise(tx, box, Transition{To: SandboxLost, Reason: reason}, map[string]any{
		"state": SandboxLost, "observed": nil, "observed_at": now, "changed_by": "platform", "changed_job": nil,
	})
	if err != nil {
		return FinishEffects{}, err
	}
	f := FinishEffects{Ended: append(gone, more...), SandboxEnded: true}
	if len(f.Ended) > 0 {
		if f.Callbacks, err = recordDeliveries(tx, f.Ended); err != nil {
			return f, err
		}
	}
	f.Dispatch, err = dispatchReady(tx, box.TenantID, s.limits.Window)
	return f, err
}

// endSilent ends the jobs of a locked sandbox whose workers have gone silent, those that had been started before, and
// the deletes that wait: nobody can say any more what became of them. It is not the workers who end them, and the rows
// do not say so.
func endSilent(tx *gorm.DB, sandboxID string, why JobError) ([]string, error) {
	return scanned[[]string](tx.Raw(`UPDATE jobs SET state = CASE WHEN cancel_requested_at IS NULL THEN 'lost' ELSE 'cancelled' END, error = CAST(? AS jsonb), finished_at = now(), lease_until = NULL, node_id = NULL
		WHERE sandbox_id = ? AND (state = 'running' AND lease_until < now() OR state = 'queued' AND (kind = 'delete' OR attempt > 0))
		RETURNING id`, jsonText(why), sandboxID))
}

// Release takes a sandbox that is still to be made from a node whose engine had no worker at the moment at, so that a
// worker on another engine can make it.
func (s *Store) Release(ctx context.Context, id string, at time.Time) ([]Dispatch, error) {
	return inSandbox(ctx, s.db, id, lockSandbox, func(tx *gorm.DB, box *Sandbox) ([]Dispatch, error) {
		res := tx.Model(&Sandbox{}).Where("id = ? AND state = 'creating'", id).Where(deserted, at, at).
			Updates(map[string]any{"node_id": nil, "changed_by": "scheduler"})
		if res.Error != nil || res.RowsAffected == 0 {
			return nil, orNotDue(res.Error)
		}
		err := tx.Model(&Job{}).Where("sandbox_id = ? AND state = 'queued'", id).Update("dispatched_at", nil).Error
		if err != nil {
			return nil, err
		}
		return dispatchReady(tx, box.TenantID, s.limits.Window)
	})
}

// Stranded returns ended sandboxes that jobs still wait for though no live worker is theirs: it died as it was giving
// them back. The worker's own row may be gone by then.
func (s *Store) Stranded(ctx context.Context, limit int) ([]string, error) {
	return scanned[[]string](s.db.WithContext(ctx).Raw(`SELECT DISTINCT s.id FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
		WHERE j.state = 'queued' AND j.queued_at < now() - interval '30 s' AND s.ended_at < now() - interval '30 s'
		  AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.node_id AND n.lease_until >= now()) LIMIT ?`, limit))
}

// EndStranded ends the jobs that wait for a sandbox which has ended.
func (s *Store) EndStranded(ctx context.Context, id string) (FinishEffects, error) {
	return inSandbox(ctx, s.db, id, lockSandbox, func(tx *gorm.DB, box *Sandbox) (f FinishEffects, err error) {
		if box.EndedAt == nil {
			return f, ErrNotDue
		}
		if f.Ended, err = endAllQueued(tx, *box); err == nil && len(f.Ended) > 0 {
			f.Callbacks, err = recordDeliveries(tx, f.Ended)
		}
		return f, err
	})
}

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
