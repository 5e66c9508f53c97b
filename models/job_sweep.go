package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// maxLosses is how often a job may lose its worker before it is given up as lost: it is likely what kills them.
const maxLosses = 10

// ExpiredLeases returns jobs that ran at the moment at on a worker which had stopped beating.
func (s *Store) ExpiredLeases(ctx context.Context, at time.Time, limit int) ([]Job, error) {
	return s.jobsWhere(ctx, limit, "lease_until", "state = 'running' AND lease_until < ?", at)
}

// pastDeadline is true of queued jobs whose queue deadline has passed. A program that may have been started has met it.
const pastDeadline = "state = 'queued' AND queue_deadline < now() AND NOT " + left

// PastDeadline returns queued jobs whose queue deadline has passed.
func (s *Store) PastDeadline(ctx context.Context, limit int) ([]Job, error) {
	return s.jobsWhere(ctx, limit, "queue_deadline", pastDeadline)
}

func (s *Store) jobsWhere(ctx context.Context, limit int, order, cond string, args ...any) ([]Job, error) {
	return findAll[Job](s.db.WithContext(ctx).Select("id", "attempt", "sandbox_id", "kind").
		Where(cond, args...).Order(order).Limit(limit))
}

// Recover takes a job from a worker whose lease has ended: back to the queue, or to its end where it was to be
// cancelled, has killed too many workers or has lost its sandbox.
func (s *Store) Recover(ctx context.Context, j Job) (FinishEffects, error) {
	var f FinishEffects
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		box, err := locked(tx, j.SandboxID, lockActive)
		if err != nil {
			return err
		}
		// A cancelled program that may run in a sandbox that lives is still to be killed, by whoever takes the job next.
		const ends = "(cancel_requested_at IS NOT NULL AND NOT (@live AND attempt - handovers < @max AND " + program + "))"
		var to JobState
		err = tx.Raw(`
			UPDATE jobs SET requeue_reason = 'its worker stopped sending heartbeats', begun = true, node_id = NULL,
			lease_until = NULL, dispatched_at = NULL, ready_at = now(),
				state = CASE WHEN `+ends+` THEN 'cancelled' WHEN attempt - handovers >= @max OR @ended THEN 'lost' ELSE 'queued' END,
				finished_at = CASE WHEN `+ends+` OR attempt - handovers >= @max OR @ended THEN now() END,
				error = CASE WHEN `+ends+` THEN CAST(@cancelled AS jsonb) WHEN attempt - handovers >= @max OR @ended THEN CAST(@lost AS jsonb) END
			WHERE id = @id AND attempt = @attempt AND state = 'running' AND lease_until < now() RETURNING state`,
			map[string]any{
				"id": j.ID, "attempt": j.Attempt, "max": maxLosses, "ended": box.EndedAt != nil && j.Kind != KindDelete,
				"live": !box.Ended(),
				"cancelled": jsonText(
					JobError{Code: "cancelled", Message: "the job was cancelled while its worker was not responding"},
				),
				"lost": jsonText(whyLost(box)),
			}).Scan(&to).Error
		if err != nil || to == "" {
			return err
		}
		return s.recovered(tx, &box, j, to, &f)
	})
	return f, err
}

func whyLost(box Sandbox) JobError {
	if box.EndedAt != nil {
		return sandboxGone(box)
	}
	return JobError{
		Code:    "worker_lost",
		Message: "every worker that ran this job died; its outcome is unknown; check the sandbox before you submit it again",
	}
}

func (s *Store) recovered(tx *gorm.DB, box *Sandbox, j Job, to JobState, f *FinishEffects) error {
	if to.Terminal() {
		return s.conclude(tx, box, []string{j.ID}, changeAfter(j.Kind, to, Transition{}), true, f)
	}
	return dispatchLater(tx, box.TenantID, s.limits.Window, pg.Into(&f.Dispatch))
}

// Expire ends a queued job whose queue deadline has passed.
func (s *Store) Expire(ctx context.Context, j Job) (FinishEffects, error) {
	var f FinishEffects
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		box, err := locked(tx, j.SandboxID, lockActive)
		if err != nil {
			return err
		}
		why := JobError{
			Code:      "queue_deadline",
			Message:   "the job did not start before its queue deadline; submit it again or raise queue_deadline_seconds",
			Retryable: true,
		}
		res := tx.Model(&Job{}).Where("id = ? AND "+pastDeadline, j.ID).
			Updates(map[string]any{"state": Expired, "error": jsonOf(why), "finished_at": gorm.Expr("now()")})
		if res.Error != nil || res.RowsAffected == 0 {
			return res.Error
		}
		return s.conclude(tx, &box, []string{j.ID}, changeAfter(j.Kind, Expired, Transition{}), true, &f)
	})
	return f, err
}

// Round is how far a look at all tasks that were handed to Redis has come. The zero value begins one.
type Round struct {
	until time.Time // of no task that was handed over later; they are the next round's
	at    time.Time // of the last task
	id    string
}

// Over says whether the round has seen all tasks, and another begins.
func (r Round) Over() bool { return r.until.IsZero() }

// Dispatched returns what was handed to Redis at least age ago and has not been claimed since: the next of the round,
// and how far the round has come with them. With fewer than limit it is over.
func (s *Store) Dispatched(ctx context.Context, r Round, age time.Duration, limit int) ([]Dispatch, Round, error) {
	if r.until.IsZero() {
		r.until = s.Now(ctx)
	}
	var found []struct {
		Dispatch

		DispatchedAt time.Time
	}
	q := s.db.WithContext(ctx).Model(&Job{}).Select("id", "tenant_id", "kind", "generation", "queue", "dispatched_at").
		Where("state = 'queued' AND dispatched_at < least(now() - ?, ?)", milliseconds(age), r.until)
	if r.id != "" {
		q = q.Where("(dispatched_at, id) > (?, ?)", r.at, r.id)
	}
	if err := q.Order("dispatched_at, id").Limit(limit).Scan(&found).Error; err != nil {
		return nil, r, err
	}
	out := make([]Dispatch, len(found))
	for i, x := range found {
		out[i], r.at, r.id = x.Dispatch, x.DispatchedAt, x.JobID
	}
	if len(found) < limit {
		r = Round{}
	}
	return out, r, nil
}

// Undispatch marks tasks that Redis does not hold any more as not handed over.
func (s *Store) Undispatch(ctx context.Context, d []Dispatch) error {
	if len(d) == 0 {
		return nil
	}
	return s.db.WithContext(ctx).Exec(`UPDATE jobs SET dispatched_at = NULL
		FROM jsonb_to_recordset(CAST(? AS jsonb)) AS gone ("JobID" text, "Generation" int)
		WHERE jobs.id = gone."JobID" AND jobs.generation = gone."Generation" AND jobs.state = 'queued'`, string(must(json.Marshal(d)))).Error
}

// UndispatchAll marks every queued job as not handed over: Redis has lost its data.
func (s *Store) UndispatchAll(ctx context.Context) error {
	return s.db.WithContext(ctx).Model(&Job{}).Where("state = 'queued' AND dispatched_at IS NOT NULL").
		Update("dispatched_at", nil).Error
}

// Backlog returns the tenants that have jobs which may run and are not handed over.
func (s *Store) Backlog(ctx context.Context) ([]string, error) {
	var tenants []string
	err := s.db.WithContext(ctx).Model(&Job{}).Distinct("tenant_id").
		Where("state = 'queued' AND ready_at <= now() AND dispatched_at IS NULL").Pluck("tenant_id", &tenants).Error
	return tenants, err
}

func jsonText(v JobError) string { return string(must(json.Marshal(v))) }
