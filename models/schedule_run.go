package models

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// The states of a run before its job has ended; then it is what the job is.
const (
	RunPending   = "pending"   // is to be submitted
	RunSubmitted = "submitted" // has its job
	RunSkipped   = "skipped"
	RunFailed    = "failed" // without a job: it could not be submitted
)

// ScheduleRun is what became of a schedule's due time.
type ScheduleRun struct {
	ID         string `gorm:"primaryKey"`
	TenantID   string
	ScheduleID string
	DueAt      time.Time
	Manual     bool // asked for, beside the due times
	State      string
	Reason     *string
	Ticks      int // due times that a skipped run stands for
	JobID      *string
	SandboxID  *string
	ExitCode   *int
	Attempts   int       // to submit it
	RetryAt    time.Time `gorm:"default:now()"`
	CreatedAt  time.Time `gorm:"autoCreateTime:false;default:now()"`
	EndedAt    *time.Time
}

// ScheduleRuns lists the runs of a tenant's schedule, newest first.
func (s *Store) ScheduleRuns(ctx context.Context, tenantID, schedule, before string, limit int) ([]ScheduleRun, error) {
	q := s.db.WithContext(ctx).Where("tenant_id = ? AND schedule_id = ?", tenantID, schedule)
	return findAll[ScheduleRun](whereSet(q, "id < ?", before).Order("id DESC").Limit(limit))
}

// DueSchedule is a schedule at a due time, under its lock.
type DueSchedule struct {
	Schedule
	Now     time.Time // of the database
	Busy    bool      // an earlier run has not ended
	Waiting int       // runs that are to be submitted
}

// Tick is what a schedule's due times come to.
type Tick struct {
	Runs    []ScheduleRun
	Last    time.Time  // the newest due time of them all
	Next    *time.Time // nil = never
	Disable string     // why the schedule cannot go on; empty = it can
}

// live says that the job of the run e has not ended.
const live = `(e.state = 'pending' OR e.state = 'submitted' AND EXISTS (
	SELECT 1 FROM jobs j WHERE j.id = e.job_id AND j.state IN ('queued', 'running')))`

// FireSchedules writes down the runs of schedules that are due, with their next due times, and says how many schedules
// these were. Another scheduler passes over those that are locked here and finds the others moved on; a due time that
// has a run already gets no second one.
func (s *Store) FireSchedules(ctx context.Context, limit int, plan func(DueSchedule) Tick) (int, error) {
	var due []DueSchedule
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		due = nil
		err := tx.Raw(`
			SELECT s.id, s.tenant_id, s.state, s.cron, s.time_zone, s.interval_ms, s.anchor, s.overlap, s.missed, s.max_catch_up,
				s.next_due, now() AS now,
				EXISTS (SELECT 1 FROM schedule_runs e WHERE e.schedule_id = s.id AND e.state IN ('pending', 'submitted') AND `+live+`) AS busy,
				(SELECT count(*) FROM schedule_runs e WHERE e.schedule_id = s.id AND e.state = 'pending') AS waiting
			FROM schedules s WHERE s.state = 'active' AND s.next_due <= now()
			ORDER BY s.next_due LIMIT ? FOR UPDATE OF s SKIP LOCKED`, limit).Scan(&due).Error
		if err != nil || len(due) == 0 {
			return err
		}
		return inHalves(tx, due,
			func(some []DueSchedule) error { return writeTicks(tx, some, plan) },
			func(one DueSchedule, cause error) error {
				return disableSchedule(tx, one.ID, "its runs cannot be stored: "+cause.Error())
			})
	})
	return len(due), err
}

func writeTicks(tx *gorm.DB, due []DueSchedule, plan func(DueSchedule) Tick) error {
	var runs []ScheduleRun
	ids, last, next := make([]string, len(due)), make([]time.Time, len(due)), make([]*time.Time, len(due))
	why := make([]string, len(due))
	for i, d := range due {
		t := plan(d)
		ids[i], last[i], next[i], why[i] = d.ID, t.Last, t.Next, t.Disable
		runs = append(runs, t.Runs...)
	}
	if len(runs) > 0 {
		if err := tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(&runs, 1000).Error; err != nil {
			return err
		}
	}
	// Past GORM, which would spread the slices.
	_, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, `
		UPDATE schedules SET last_due = v.last, next_due = v.next,
			state = CASE WHEN v.why = '' THEN state ELSE 'disabled' END, reason = nullif(v.why, ''),
			changed_by = CASE WHEN v.why = '' THEN changed_by ELSE 'scheduler' END, updated_at = CASE WHEN v.why = '' THEN updated_at ELSE now() END
		FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::text[]) AS v (id, last, next, why)
		WHERE schedules.id = v.id`, ids, last, next, why)
	return err
}

// AnyPendingRun says whether a run waits: nearly always none does, and then there is nothing else to ask.
func (s *Store) AnyPendingRun(ctx context.Context) (any bool, err error) {
	return scanned[bool](s.db.WithContext(ctx).Raw("SELECT EXISTS (SELECT 1 FROM schedule_runs WHERE state = 'pending')"))
}

// PendingRuns returns runs that may be submitted now: their time has come, and none that was due earlier still waits or
// runs.
func (s *Store) PendingRuns(ctx context.Context, limit int) ([]ScheduleRun, error) {
	return scanned[[]ScheduleRun](s.db.WithContext(ctx).Raw(`
		SELECT r.* FROM schedule_runs r WHERE r.state = 'pending' AND r.retry_at <= now() AND NOT EXISTS (
			SELECT 1 FROM schedule_runs e WHERE e.schedule_id = r.schedule_id AND e.state IN ('pending', 'submitted')
			AND (e.due_at, e.id) < (r.due_at, r.id) AND `+live+`)
		ORDER BY r.due_at, r.id LIMIT ?`, limit))
}

// JobToCancel is a job that is in the way of a later run.
type JobToCancel struct{ TenantID, JobID string }

// ReplaceRuns makes room for the newest runs of schedules that cancel what still runs: older ones that wait are
// skipped, and the jobs of others, which nobody has cancelled yet, are returned.
func (s *Store) ReplaceRuns(ctx context.Context, limit int) ([]JobToCancel, error) {
	db := s.db.WithContext(ctx)
	err := db.Exec(`UPDATE schedule_runs e SET state = 'skipped', reason = 'a later run replaced it', ended_at = now()
		FROM schedule_runs r, schedules s
		WHERE e.state = 'pending' AND r.state = 'pending' AND r.schedule_id = e.schedule_id AND (r.due_at, r.id) > (e.due_at, e.id)
		  AND s.id = r.schedule_id AND s.overlap = 'cancel_running'`).Error
	if err != nil {
		return nil, err
	}
	return scanned[[]JobToCancel](db.Raw(`SELECT j.tenant_id, j.id AS job_id
		FROM schedule_runs r JOIN schedules s ON s.id = r.schedule_id AND s.overlap = 'cancel_running'
		JOIN schedule_runs e ON e.schedule_id = r.schedule_id AND e.state = 'submitted'
		JOIN jobs j ON j.id = e.job_id AND j.state IN ('queued', 'running') AND j.cancel_requested_at IS NULL
		WHERE r.state = 'pending' LIMIT ?`, limit))
}

// EndRun ends a run that waits without a job, for the reason given.
func (s *Store) EndRun(ctx context.Context, id, state, reason string) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		res := tx.Exec(
			`UPDATE schedule_runs SET state = ?, reason = ?, ended_at = now() WHERE id = ? AND state = 'pending'`,
			state,
			reason,
			id,
		)
		if res.Error != nil || res.RowsAffected == 0 || state != RunFailed {
			return res.Error
		}
		return tx.Exec(`UPDATE schedules SET consecutive_failures = consecutive_failures + 1
			WHERE id = (SELECT schedule_id FROM schedule_runs WHERE id = ?)`, id).Error
	})
}

// DelayRun lets a run that waits be tried again later, for the reason given.
func (s *Store) DelayRun(ctx context.Context, id, reason string, delay time.Duration) error {
	return s.db.WithContext(ctx).Exec(`UPDATE schedule_runs SET attempts = attempts + 1, reason = ?, retry_at = now() + ?
		WHERE id = ? AND state = 'pending'`, reason, milliseconds(delay), id).Error
}

// exitCode is that of a job's result. What no process ends with is a failure, and no error that would keep the runs of
// all tenants from their ends: it comes from sandboxes.
const exitCode = `CASE WHEN j.result->>'exit_code' ~ '^-{0,1}[0-9]{1,9}$' THEN CAST(j.result->>'exit_code' AS int) WHEN j.result->>'exit_code' <> '' THEN 255 END`

// SettleRuns writes down how the jobs of runs have ended, counts the failures of their schedules, and says how many
// runs these were. A command that exits other than 0 is a failure here.
func (s *Store) SettleRuns(ctx context.Context, limit int) (int, error) {
	var n int
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		var ended []struct {
			ScheduleID string
			Good       bool
		}
		err := tx.Raw(`
			WITH ended AS (
				SELECT r.id, coalesce(j.state, 'lost') AS state, coalesce(j.finished_at, now()) AS at,
				j.error->>'message' AS reason,
					CASE WHEN j.kind IN ('exec', 'exec_wait', 'code') THEN `+exitCode+` END AS exit_code
				FROM schedule_runs r LEFT JOIN jobs j ON j.id = r.job_id
				WHERE r.state = 'submitted' AND (j.id IS NULL OR j.finished_at IS NOT NULL)
				ORDER BY r.schedule_id, r.due_at, r.id LIMIT ? FOR UPDATE OF r SKIP LOCKED),
			told AS (
				UPDATE schedule_runs r SET state = ended.state, ended_at = ended.at, exit_code = ended.exit_code, reason = ended.reason
				FROM ended WHERE r.id = ended.id
				RETURNING r.schedule_id, r.due_at, r.id, r.state = 'succeeded' AND coalesce(r.exit_code, 0) = 0 AS good)
			SELECT schedule_id, good FROM told ORDER BY schedule_id, due_at, id`, limit).Scan(&ended).Error
		if err != nil || len(ended) == 0 {
			return err
		}
		n = len(ended)
		failures, reset := map[string]int{}, map[string]bool{}
		for _, e := range ended {
			failures[e.ScheduleID]++
			if e.Good {
				failures[e.ScheduleID], reset[e.ScheduleID] = 0, true
			}
		}
		return countFailures(tx, failures, reset)
	})
	return n, err
}

func countFailures(tx *gorm.DB, failures map[string]int, reset map[string]bool) error {
	var ids []string
	var more []int
	var anew []bool
	for id, n := range failures {
		ids, more, anew = append(ids, id), append(more, n), append(anew, reset[id])
	}
	_, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, `
		UPDATE schedules SET consecutive_failures = CASE WHEN v.anew THEN 0 ELSE consecutive_failures END + v.more
		FROM unnest($1::text[], $2::int[], $3::boolean[]) AS v (id, more, anew) WHERE schedules.id = v.id`, ids, more, anew)
	return err
}

// PruneRuns forgets runs that ended longer than age ago, and says how many.
func (s *Store) PruneRuns(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "schedule_runs", "ended_at", age, limit)
}

// PruneHistories forgets ended runs of those of the schedules that have more than keep runs, the oldest, and says how
// many.
func (s *Store) PruneHistories(ctx context.Context, schedules []string, keep, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`DELETE FROM schedule_runs WHERE id = ANY (ARRAY(
		SELECT old.id FROM unnest(CAST(@schedules AS text[])) AS s (id)
		CROSS JOIN LATERAL (SELECT k.id FROM schedule_runs k WHERE k.schedule_id = s.id ORDER BY k.id DESC OFFSET @keep LIMIT 1) AS last
		CROSS JOIN LATERAL (SELECT r.id FROM schedule_runs r WHERE r.schedule_id = s.id AND r.id <= last.id AND r.ended_at IS NOT NULL
			ORDER BY r.id LIMIT @limit FOR UPDATE SKIP LOCKED) AS old LIMIT @limit))`,
		map[string]any{"schedules": idArray(schedules), "keep": keep, "limit": limit})
	return int(res.RowsAffected), res.Error
}

// claimRuns gives the runs of the group their jobs. Who finds his taken, skipped or gone is not due.
func (b *batch) claimRuns() error {
	if !slices.ContainsFunc(b.group, func(p *submission) bool { return p.Run != nil }) {
		return nil
	}
	if err := pg.Flush(b.tx); err != nil { // who has the keys comes first
		return err
	}
	b.settleKeys()
	waiting := slices.DeleteFunc(b.open(), func(p *submission) bool { return p.Run == nil || p.Run.Manual })
	if len(waiting) > 0 {
		if err := b.takeRuns(waiting); err != nil {
			return err
		}
	}
	for _, p := range b.open() {
		if p.Run != nil && p.Run.Manual {
			if err := b.addRun(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeRuns locks the runs in one order. One that has our job already has it from a commit whose answer was lost.
func (b *batch) takeRuns(subs []*submission) error {
	slices.SortFunc(subs, func(x, y *submission) int { return cmp.Compare(x.Run.ID, y.Run.ID) })
	// Past GORM, which would spread the slices.
	rows, err := b.tx.Statement.ConnPool.QueryContext(b.tx.Statement.Context, `
		WITH locked AS (
			SELECT r.id, v.job, v.sandbox FROM schedule_runs r JOIN unnest($1::text[], $2::text[], $3::text[]) AS v (id, job, sandbox) ON v.id = r.id
			WHERE r.state = 'pending' OR r.job_id = v.job ORDER BY r.id FOR NO KEY UPDATE OF r)
		UPDATE schedule_runs r SET state = 'submitted', reason = NULL, job_id = locked.job, sandbox_id = locked.sandbox
		FROM locked WHERE r.id = locked.id RETURNING r.job_id`,
		column(subs, func(p *submission) string { return p.Run.ID }), column(subs, (*submission).answer),
		column(subs, func(p *submission) string { return p.SandboxID }))
	if err != nil {
		return err
	}
	defer rows.Close()
	taken := map[string]bool{}
	for rows.Next() {
		var job string
		if err := rows.Scan(&job); err != nil {
			return err
		}
		taken[job] = true
	}
	for _, p := range subs {
		if !taken[p.answer()] {
			p.err = ErrNotDue
		}
	}
	return rows.Err()
}

// addRun writes down a run that was asked for, which stands already where the answer to its commit was lost.
func (b *batch) addRun(p *submission) error {
	res := b.tx.Exec(`INSERT INTO schedule_runs (id, tenant_id, schedule_id, due_at, manual, state, job_id, sandbox_id)
		SELECT ?, tenant_id, id, now(), true, 'submitted', ?, ? FROM schedules WHERE id = ? AND tenant_id = ?
		ON CONFLICT (id) DO UPDATE SET job_id = excluded.job_id`,
		p.Run.ID, p.answer(), p.SandboxID, p.Run.ScheduleID, p.TenantID)
	if res.Error == nil && res.RowsAffected == 0 {
		p.err = ErrNotDue
	}
	return res.Error
}

// releaseRuns takes the jobs of refused submissions from their runs again.
func (b *batch) releaseRuns() error {
	for _, p := range b.group {
		if p.Run == nil || p.err == nil && !p.out.Existing {
			continue
		}
		q := `UPDATE schedule_runs SET state = 'pending', job_id = NULL, sandbox_id = NULL WHERE id = ? AND job_id = ?`
		if p.Run.Manual {
			q = `DELETE FROM schedule_runs WHERE id = ? AND job_id = ?`
		}
		if err := b.tx.Exec(q, p.Run.ID, p.answer()).Error; err != nil {
			return err
		}
	}
	return nil
}
