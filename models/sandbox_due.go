package models

import (
	"context"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// DueRule says when time is up for sandboxes. One condition finds them, and is asked again under a sandbox's lock
// before anything is done to it (Submission.Due).
type DueRule struct {
	Reason string // of what is done

	order string // the column of the time that comes first
	cond  string
	args  []any
}

// DueTimeout is for live sandboxes that have passed their expiry and are not ending yet. One that is still to be made
// has nothing that could be paused. The timeout of a paused one stands still, and starts anew with the resume. A pause
// that has failed is tried again after a rest that grows, so that a provider which cannot pause is not asked for ever.
func DueTimeout() *DueRule {
	return &DueRule{Reason: "timeout", order: "expires_at", cond: `expires_at <= now() AND state IN ('creating', 'running')
		AND (on_timeout = 'delete' OR state = 'creating' OR desired = 'running'
			AND (pause_failed_at IS NULL OR pause_failed_at <= now() - ` + restSince("expires_at") + `))`}
}

// restSince is how long what keeps failing rests before its next try: a quarter of the time for which it is due, from
// 10 seconds to an hour. So there are few rows of what fails for good, such as where a tenant's key is refused.
func restSince(due string) string {
	return "least(greatest((now() - " + due + ") / 4, interval '10 s'), interval '1 h')"
}

// DueIdle is for running sandboxes that nobody had used for longer than their idle timeout at the moment at.
func DueIdle(at time.Time) *DueRule {
	return &DueRule{Reason: "idle", order: "last_active_at", args: []any{at}, cond: `idle_timeout_ms > 0
		AND state = 'running' AND desired = 'running' AND last_active_at + idle_timeout_ms * interval '1 ms' <= ?
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.state IN ('queued', 'running'))`}
}

// DueLifetime is for live sandboxes that have lived as long as they may, whatever they do.
func DueLifetime() *DueRule {
	return &DueRule{Reason: "max_lifetime", order: "started_at", cond: `max_lifetime_ms > 0
		AND state IN ('running', 'paused') AND started_at + max_lifetime_ms * interval '1 ms' <= now()`}
}

// DuePaused is for sandboxes that have been paused for longer than they may, whatever is frozen in them.
func DuePaused() *DueRule {
	return &DueRule{Reason: "paused_timeout", order: "paused_at", cond: `paused_timeout_ms > 0
		AND state = 'paused' AND desired = 'paused' AND paused_at + paused_timeout_ms * interval '1 ms' <= now()`}
}

// StuckDelete is for sandboxes that are to go but have no job left that would do it. A delete that has failed is tried
// again after a rest that grows; one that was cancelled does not make it longer.
func StuckDelete() *DueRule {
	return &DueRule{Reason: "deleted", order: "created_at", cond: `(state = 'deleting' OR desired = 'deleted')
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.state IN ('queued', 'running'))
		AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.kind = 'delete'
			HAVING max(j.finished_at) > now() - ` + restSince("min(j.finished_at) FILTER (WHERE j.state <> 'cancelled')") + `)`}
}

// where narrows a query of sandboxes to those for which the rule holds.
func (r *DueRule) where(tx *gorm.DB) *gorm.DB {
	return tx.Where("ended_at IS NULL AND "+r.cond, r.args...)
}

// Due returns sandboxes for which a rule holds, those first whose time was up first.
func (s *Store) Due(ctx context.Context, r *DueRule, limit int) ([]Sandbox, error) {
	return findAll[Sandbox](r.where(s.db.WithContext(ctx)).Order(r.order).Limit(limit))
}

// askRules asks which of the locked sandboxes are due by the rules of the group.
func (b *batch) askRules() error {
	of := map[*DueRule][]string{}
	for _, p := range b.open() {
		if p.Due != nil {
			of[p.Due] = append(of[p.Due], p.SandboxID)
		}
	}
	for rule, ids := range of {
		find := rule.where(pg.Build(b.tx).Where("id = ANY (?::text[])", idArray(ids))).Select("id").Find(&[]Sandbox{})
		err := pg.Enqueue(find, pg.Each(func(box Sandbox) { b.due[dueKey{rule, box.ID}] = true }))
		if err != nil {
			return err
		}
	}
	return nil
}

// dueKey is a sandbox for which a rule holds.
type dueKey struct {
	rule *DueRule
	id   string
}
