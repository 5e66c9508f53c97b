package models

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// Claim makes node the owner of a queued job until the lease ends, under a new attempt. ErrStale means that there is
// nothing to do: the job ended, runs elsewhere, or its sandbox went to another node. A program that was to be cancelled
// while nobody had it is claimed to be killed.
func (s *Store) Claim(ctx context.Context, id, node string, lease time.Duration) (Job, error) {
	return s.claim(ctx, id, node, lease, false)
}

// ClaimAgain is Claim for a node that was not answered the last time: it also takes a job that it owns already, which
// it must not run.
func (s *Store) ClaimAgain(ctx context.Context, id, node string, lease time.Duration) (Job, error) {
	return s.claim(ctx, id, node, lease, true)
}

func (s *Store) claim(ctx context.Context, id, node string, lease time.Duration, again bool) (Job, error) {
	var j struct {
		Job

		Kept map[string]string `gorm:"serializer:json"`
	}
	res := s.db.WithContext(ctx).Raw(`
		UPDATE jobs SET state = 'running', attempt = attempt + 1, node_id = @node, started_at = coalesce(started_at, now()),
			lease_until = now() + @lease * interval '1 ms'
		WHERE id = @id AND (state = 'queued' AND ready_at IS NOT NULL OR @again AND state = 'running' AND node_id = @node)
		  AND EXISTS (SELECT 1 FROM sandboxes s WHERE s.id = jobs.sandbox_id AND (s.node_id IS NULL OR s.node_id = @node))
		RETURNING *, (SELECT jsonb_object_agg(e.name, e.value) FROM sandbox_env e WHERE e.sandbox_id = jobs.sandbox_id) AS kept`,
		map[string]any{"id": id, "node": node, "lease": lease.Milliseconds(), "again": again}).Scan(&j)
	j.KeptEnv = j.Kept
	return j.Job, affected(res, ErrStale)
}

// BeginDelete turns the sandbox to deleting and stops all other work in it. It returns the jobs that ended by that.
func (s *Store) BeginDelete(ctx context.Context, j Job, why End) (ended []string, err error) {
	_, err = s.begin(ctx, j, nil, func(tx *gorm.DB, box *Sandbox) error {
		if box.EndedAt != nil {
			return nil
		}
		if ended, err = endNow(tx, box, why); err != nil {
			return err
		}
		return settle(tx, box.ID, ended)
	})
	return ended, err
}

// begin runs f under the sandbox's lock if the attempt still owns the job, and returns the sandbox as f leaves it.
// Look, where it is not nil, is asked along.
func (s *Store) begin(
	ctx context.Context,
	j Job,
	look func(*gorm.DB) error,
	f func(tx *gorm.DB, box *Sandbox) error,
) (Sandbox, error) {
	var found owned
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		found = owned{}
		err := lockFor(tx, j, &found)
		if err == nil && look != nil {
			err = look(tx)
		}
		if err == nil {
			err = pg.Flush(tx)
		}
		if err = cmp.Or(err, found.err()); err != nil {
			return err
		}
		return f(tx, &found.Sandbox)
	})
	return found.Sandbox, err
}

// What is in the condition of everything that an attempt writes of its job: it must still be the last one.
const (
	fence     = "attempt = ?"
	fenceHeld = "h.attempt = j.attempt"
)

// AttemptRef names a job by its fence.
type AttemptRef struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
}

// LeaseRenewal is what a heartbeat learns of one job that is still ours.
type LeaseRenewal struct {
	ID      string
	Attempt int
	Cancel  bool // somebody asked for its end
}

// Heartbeat extends the lease of a node and of the jobs it runs. Jobs missing from the answer belong to others now. A
// job whose row somebody has locked is still the node's, and loses its own lease at most: the others do not wait for
// it.
func (s *Store) Heartbeat(
	ctx context.Context,
	node Node,
	held []AttemptRef,
	lease time.Duration,
) (NodeOrders, []LeaseRenewal, error) {
	wanted, err := s.Register(ctx, node, lease)
	if err != nil || len(held) == 0 {
		return wanted, nil, err
	}
	var beats []LeaseRenewal
	err = s.db.WithContext(ctx).Raw(`
		WITH held AS (SELECT j.id, h.attempt, j.cancel_requested_at IS NOT NULL AS cancel
				FROM jobs j JOIN jsonb_to_recordset(CAST(@held AS jsonb)) AS h(id text, attempt int) ON h.id = j.id AND `+fenceHeld+`
				WHERE j.state = 'running'),
			free AS (SELECT id FROM jobs WHERE id IN (SELECT id FROM held) AND state = 'running' FOR UPDATE SKIP LOCKED),
			beaten AS (UPDATE jobs SET lease_until = now() + @lease * interval '1 ms' FROM held, free
				WHERE jobs.id = held.id AND jobs.id = free.id)
		SELECT * FROM held`,
		map[string]any{"held": string(must(json.Marshal(held))), "lease": lease.Milliseconds()}).Scan(&beats).Error
	return wanted, beats, err
}

// Asked returns those of the jobs whose end somebody has asked for.
func (s *Store) Asked(ctx context.Context, held []AttemptRef) ([]AttemptRef, error) {
	return scanned[[]AttemptRef](s.db.WithContext(ctx).
		Raw(`SELECT j.id, j.attempt FROM jobs j JOIN jsonb_to_recordset(CAST(? AS jsonb)) AS h(id text, attempt int)
		ON h.id = j.id AND h.attempt = j.attempt WHERE j.state = 'running' AND j.cancel_requested_at IS NOT NULL`,
			string(must(json.Marshal(held)))))
}

// Requeue is what becomes of a job whose attempt did not end it.
type Requeue struct {
	AttemptRef
	Delay  time.Duration // before it may run again
	Reason string
	Failed bool // the attempt has; else the job is handed over
	Begun  bool // what the job runs may have been started
}

// Requeue gives a claimed job back, to run again. ErrStale if it is not ours any more or was cancelled; of a cancelled
// program that may have been started somebody still has to see to the end.
func (s *Store) Requeue(ctx context.Context, r Requeue) error {
	return giveBack(s.db.WithContext(ctx), r, gorm.Expr("now() + ?", milliseconds(r.Delay)))
}

// giveBack makes a claimed job a queued one, which may run from ready on.
func giveBack(db *gorm.DB, r Requeue, ready any) error {
	res := db.Model(&Job{}).
		Where("id = ? AND "+fence+" AND state = 'running' AND (cancel_requested_at IS NULL OR "+program+")", r.ID, r.Attempt).
		Updates(map[string]any{
			"state": Queued, "ready_at": ready, "dispatched_at": nil, "node_id": nil, "lease_until": nil,
			"requeue_reason": r.Reason,
			"handovers":      gorm.Expr("handovers + CASE WHEN ? THEN 0 ELSE 1 END", r.Failed),
			"begun":          gorm.Expr("begun OR ?", r.Begun),
		})
	return affected(res, ErrStale)
}

// Place is where a sandbox is to be made.
type Place struct {
	Provider string
	Image    string
	Spec     json.RawMessage
}

// MoveProvider gives a sandbox that is still to be made to another provider, and its claimed create job back to run
// there. ErrStale if the job is not ours any more or was cancelled, or the sandbox has ended.
func (s *Store) MoveProvider(ctx context.Context, j Job, to Place, r Requeue) (out []Dispatch, err error) {
	_, err = s.begin(ctx, j, nil, func(tx *gorm.DB, box *Sandbox) error {
		if box.State != SandboxCreating || box.Ended() {
			return ErrStale
		}
		err := tx.Model(box).Updates(map[string]any{
			"provider": to.Provider, "image": to.Image, "spec": to.Spec, "node_id": nil, "provider_ref": nil,
			"provider_key": nil, // of the one before; which of its accounts may have something is in provider_accounts
			"changed_by":   j.Actor, "changed_job": j.ID,
		}).Error
		if err == nil {
			err = giveBack(tx, r, gorm.Expr("now()"))
		}
		if err == nil {
			out, err = dispatchReady(tx, j.TenantID, s.limits.Window)
		}
		return err
	})
	return out, err
}

// DispatchReady hands over what may run of one tenant's jobs.
func (s *Store) DispatchReady(ctx context.Context, tenantID string) ([]Dispatch, error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) ([]Dispatch, error) {
		return dispatchReady(tx, tenantID, s.limits.Window)
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err) // marshalling our own plain structs cannot fail
	}
	return b
}

func jsonOf(v any) clause.Expr {
	return gorm.Expr("?::jsonb", string(must(json.Marshal(v))))
}
