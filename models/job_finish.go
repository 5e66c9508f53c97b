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

// Outcome is how one attempt of a job ended and what that means for its sandbox.
type Outcome struct {
	AttemptRef
	SandboxID string
	Kind      string
	State     JobState
	Result    any // becomes JSON; nil = none
	Stdout    []byte
	Stderr    []byte
	Content   []byte
	Error     *JobError
	Provider  time.Duration // spent in the provider
	Sandbox   Transition
	Callback  bool       // the job has one
	Grant     *PortGrant // what a port job has granted
}

// Transition is what a job's end makes of its sandbox.
type Transition struct {
	To     SandboxState // empty = nothing
	Ref    string       // the provider's id, with SandboxRunning after a create
	Reason string       // with SandboxLost and SandboxFailed
	// Overtaken: of a pause that was not made, because a later resume or timeout came first. It has not failed.
	Overtaken bool

	kind  string // of the job, and how it ended
	state JobState
}

// FinishEffects is what followed from a job's end.
type FinishEffects struct {
	Ended     []string // this job and those that ended with it
	Dispatch  []Dispatch
	Callbacks bool // a delivery was recorded
	// SandboxEnded says that the sandbox is gone or going.
	SandboxEnded bool
}

// Finish ends a job if the attempt still owns it, and in the same transaction changes its sandbox, lets the next job
// run and records the callbacks. ErrStale: somebody else owns the job, drop the result.
func (s *Store) Finish(ctx context.Context, o Outcome) (FinishEffects, error) {
	var f FinishEffects
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		box, err := lockAndWrite(tx, &o)
		if err != nil {
			return err
		}
		if err := writeGrant(tx, o.Grant); err != nil {
			return err
		}
		return s.conclude(tx, &box, []string{o.ID}, changeAfter(o.Kind, o.State, o.Sandbox), o.Callback, &f)
	})
	return f, err
}

// lockAndWrite locks the sandbox and writes the outcome, if the attempt still owns the job.
func lockAndWrite(tx *gorm.DB, o *Outcome) (box Sandbox, err error) {
	lock := lockActive
	if o.Sandbox.To != "" || o.Kind == KindPause {
		lock = lockSandbox // the change itself marks it as active, and a pause that failed is no use of it
	}
	if err := lock(tx, o.SandboxID, &box); err != nil {
		return box, err
	}
	if err := preferCancel(tx, o); err != nil {
		return box, err
	}
	var written int64
	if err := writeOutcome(tx, *o, &written); err != nil {
		return box, err
	}
	switch err := pg.Flush(tx); {
	case err != nil:
		return box, err
	case box.ID == "":
		return box, ErrNotFound
	case written == 0:
		return box, ErrStale
	}
	return box, nil
}

// FinishedBy tells what followed from an end that this attempt has written without being answered, as far as nobody
// else sees to it. ErrStale: it has not, and the job is somebody else's.
func (s *Store) FinishedBy(ctx context.Context, h AttemptRef, node string) (FinishEffects, error) {
	var box Sandbox
	res := s.db.WithContext(ctx).Raw(`SELECT s.* FROM sandboxes s JOIN jobs j ON j.sandbox_id = s.id
		WHERE j.id = ? AND j.attempt = ? AND j.node_id = ? AND j.finished_at IS NOT NULL`, h.ID, h.Attempt, node).Scan(&box)
	if res.Error == nil && res.RowsAffected == 0 {
		return FinishEffects{}, ErrStale
	}
	return FinishEffects{Ended: []string{h.ID}, Callbacks: true, SandboxEnded: box.Ended()}, res.Error
}

// preferCancel calls a job cancelled that failed after somebody had asked for its end: a forced delete, say, takes the
// sandbox away before the worker has read the request.
func preferCancel(tx *gorm.DB, o *Outcome) error {
	if o.State != Failed && o.State != Lost {
		return nil
	}
	var asked bool
	err := tx.Model(&Job{}).Select("cancel_requested_at IS NOT NULL").Where("id = ?", o.ID).Scan(&asked).Error
	if asked {
		o.State, o.Error = Cancelled, &JobError{Code: "cancelled", Message: "the job was cancelled while it ran"}
	}
	return err
}

func writeOutcome(tx *gorm.DB, o Outcome, written *int64) error {
	set := map[string]any{
		"state": o.State, "stdout": o.Stdout, "stderr": o.Stderr, "content": o.Content,
		"finished_at": gorm.Expr("now()"), "lease_until": nil, "provider_ms": o.Provider.Milliseconds(),
	}
	if o.Result != nil {
		b, err := json.Marshal(o.Result)
		if err != nil {
			return err
		}
		set["result"] = gorm.Expr("?::jsonb", string(b))
	}
	if o.Error != nil {
		set["error"] = jsonOf(o.Error)
	}
	return pg.Enqueue(
		pg.Build(tx).Model(&Job{}).Where("id = ? AND "+fence+" AND state = 'running'", o.ID, o.Attempt).Updates(set),
		pg.Count(written),
	)
}

// changeAfter adds what a kind implies: a sandbox whose create did not succeed has failed.
func changeAfter(kind string, state JobState, c Transition) Transition {
	if makesSandbox(kind) && state != Succeeded && c.To == "" {
		c = Transition{To: SandboxFailed, Reason: kind + " " + string(state)}
	}
	c.kind, c.state = kind, state
	return c
}

// conclude does everything that follows from the end of jobs on a locked sandbox, and tells f of it by the end of the
// transaction. Callback says that one of them may have a callback.
func (s *Store) conclude(
	tx *gorm.DB,
	box *Sandbox,
	ended []string,
	c Transition,
	callback bool,
	f *FinishEffects,
) error {
	was := box.State
	more, err := applyChange(tx, box, ended[0], c)
	if err != nil {
		return err
	}
	if err := settleWish(tx, box, c); err != nil {
		return err
	}
	*f = FinishEffects{Ended: append(ended, more...), SandboxEnded: box.Ended()}
	if callback || len(more) > 0 {
		if f.Callbacks, err = recordDeliveries(tx, f.Ended); err != nil {
			return err
		}
	}
	if err := moveOn(tx, box.ID, c.To, was); err != nil {
		return err
	}
	return dispatchLater(tx, box.TenantID, s.limits.Window, pg.Into(&f.Dispatch))
}

// moveOn lets run what may in a locked sandbox, which has become what to says, if anything, and was something before.
func moveOn(tx *gorm.DB, sandboxID string, to, was SandboxState) error {
	switch {
	case to == SandboxRunning:
		return promoteAll(tx, sandboxID)
	case cmp.Or(to, was) == SandboxPaused:
		if err := letPast(tx, sandboxID); err != nil {
			return err
		}
	}
	return promote(tx, sandboxID)
}

// applyChange moves a locked sandbox on, as its job says, and returns the queued jobs that ended with it.
func applyChange(tx *gorm.DB, box *Sandbox, jobID string, c Transition) ([]string, error) {
	if box.State == SandboxDeleting && c.To != SandboxDeleted && c.To != SandboxRunning {
		c = Transition{} // only its delete ends it: until then something of it may be left
	}
	now := gorm.Expr("now()")
	set := map[string]any{}
	if c.To != "" && box.EndedAt == nil {
		set["state"], set["observed"], set["observed_at"] = c.To, c.To, now
		set["last_active_at"] = gorm.Expr("greatest(last_active_at, now())")
		set["changed_job"], set["changed_by"] = jobID, gorm.Expr(
			"coalesce((SELECT actor FROM jobs WHERE id = ?), 'platform')",
			jobID,
		)
	}
	if c.To == SandboxPaused && box.State != SandboxPaused {
		set["paused_at"] = now
	}
	switch {
	case box.EndedAt != nil:
		return nil, nil
	case c.To == SandboxRunning:
		return nil, resumed(tx, box, c, set)
	case c.To == SandboxDeleted, c.To == SandboxFailed, c.To == SandboxLost:
		return finalise(tx, box, c, set)
	case len(set) == 0:
		return nil, nil
	}
	return nil, pg.Enqueue(pg.Build(tx).Model(box).Updates(set), nil)
}

// resumed starts the sandbox's clocks.
func resumed(tx *gorm.DB, box *Sandbox, c Transition, set map[string]any) error {
	set["expires_at"] = gorm.Expr("now() + timeout_ms * interval '1 ms'")
	set["started_at"] = gorm.Expr("coalesce(started_at, now())")
	if c.Ref != "" {
		set["provider_ref"] = c.Ref
	}
	if box.State == SandboxDeleting {
		delete(set, "state")
	}
	if err := thaw(tx, box); err != nil {
		return err
	}
	return pg.Enqueue(pg.Build(tx).Model(box).Updates(set), nil)
}

// finalise ends the sandbox for good, with every job that still waits for it.
func finalise(tx *gorm.DB, box *Sandbox, c Transition, set map[string]any) (ended []string, err error) {
	if box.EndReason == nil {
		set["end_reason"], set["end_actor"] = c.Reason, "platform"
		box.EndReason = &c.Reason
	}
	set["ended_at"] = gorm.Expr("now()")
	var now struct{ EndedAt *time.Time }
	update := pg.Build(tx).
		Model(box).
		Clauses(clause.Returning{Columns: []clause.Column{{Name: "ended_at"}}}).
		Updates(set)
	if err = pg.Enqueue(update, pg.Into(&now)); err != nil {
		return nil, err
	}
	box.State = c.To
	ended, err = endAllQueued(tx, *box)
	box.EndedAt = now.EndedAt
	return ended, err
}

// endAllQueued ends the jobs that wait for what is gone, and returns their ids. Deletes among them have what they want.
func endAllQueued(tx *gorm.DB, box Sandbox) (ended []string, err error) {
	if err := endQueued(tx, box.ID, sandboxGone(box), &ended); err != nil {
		return nil, err
	}
	moot := pg.Build(tx).Raw(`UPDATE jobs SET state = 'succeeded', started_at = now(), finished_at = now()
		WHERE sandbox_id = ? AND state = 'queued' AND kind = 'delete' RETURNING id`, box.ID)
	if err = pg.Enqueue(moot, ids(&ended)); err == nil {
		err = pg.Flush(tx)
	}
	return ended, err
}

// Cancel ends a queued job at once and asks a running one to stop, on behalf of actor; on a job that has ended it does
// nothing. A program that a worker has left behind is running, in nobody's hands: whoever takes the job next kills it.
// It returns the job as it then stands.
func (s *Store) Cancel(ctx context.Context, tenantID, id, actor string) (Job, FinishEffects, error) {
	var j Job
	var f FinishEffects
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		f = FinishEffects{}
		if err := tx.Where("tenant_id = ? AND id = ?", tenantID, id).Take(&j).Error; err != nil {
			return notFound(err)
		}
		box, err := locked(tx, j.SandboxID, lockActive)
		if err != nil {
			return err
		}
		if err := s.cancelLocked(tx, &box, j, actor, &f); err != nil {
			return err
		}
		return tx.Where("id = ?", id).Take(&j).Error
	})
	return j, f, err
}

func (s *Store) cancelLocked(tx *gorm.DB, box *Sandbox, j Job, actor string, f *FinishEffects) error {
	why := JobError{Code: "cancelled", Message: "the job was cancelled before it started"}
	res := tx.Model(&Job{}).Where("id = ? AND state = 'queued' AND NOT "+left, j.ID).
		Updates(map[string]any{
			"state": Cancelled, "error": jsonOf(why), "finished_at": gorm.Expr("now()"), "cancelled_by": actor,
		})
	if res.Error != nil {
		return res.Error
	}
	if res.RowsAffected == 0 {
		return tx.Model(&Job{}).
			Where("id = ? AND state IN ('queued', 'running') AND cancel_requested_at IS NULL", j.ID).
			Updates(map[string]any{"cancel_requested_at": gorm.Expr("now()"), "cancelled_by": actor}).
			Error
	}
	return s.conclude(tx, box, []string{j.ID}, changeAfter(j.Kind, Cancelled, Transition{}), true, f)
}
