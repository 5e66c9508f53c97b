package models

import (
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// oldestOrdered is the job of a sandbox whose turn it is.
const oldestOrdered = `id = (SELECT id FROM jobs WHERE sandbox_id = @id AND NOT parallel AND state IN ('queued', 'running')
	ORDER BY seq LIMIT 1)`

// promote lets the oldest ordered job of a sandbox run, unless one runs or may run already, or it is frozen. The caller
// holds the sandbox's lock, and this is a statement of its own, so it sees every job that was committed before the lock
// was won. It is left to the transaction.
func promote(tx *gorm.DB, sandboxID string) error {
	return release(
		tx,
		sandboxID,
		oldestOrdered+" AND NOT ("+left+" AND EXISTS (SELECT 1 FROM sandboxes WHERE id = @id AND state = 'paused'))",
	)
}

// promoteAll is promote where the parallel jobs, or those that are frozen, waited for the sandbox to run.
func promoteAll(tx *gorm.DB, sandboxID string) error {
	return release(tx, sandboxID, "sandbox_id = @id AND (parallel OR "+oldestOrdered+")")
}

func release(tx *gorm.DB, sandboxID, which string) error {
	return pg.Enqueue(
		pg.Build(tx).Exec("UPDATE jobs SET ready_at = now() WHERE state = 'queued' AND ready_at IS NULL AND "+which,
			map[string]any{"id": sandboxID}),
		nil,
	)
}

// settle follows up on jobs that have just ended: it writes their callbacks down and lets the next job run.
func settle(tx *gorm.DB, sandboxID string, ended []string) error {
	if len(ended) == 0 {
		return nil
	}
	if _, err := recordDeliveries(tx, ended); err != nil {
		return err
	}
	return promote(tx, sandboxID)
}

// endQueued ends the queued jobs of a locked sandbox that is gone, but its deletes, with the next flush, which adds
// their ids to ended. Of a program that was started nobody can say how it ended.
func endQueued(tx *gorm.DB, sandboxID string, why JobError, ended *[]string) error {
	return pg.Enqueue(pg.Build(tx).Model(&Job{}).Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}}}).
		Where("sandbox_id = ? AND state = 'queued' AND kind <> ?", sandboxID, KindDelete).
		Updates(map[string]any{
			"state": gorm.Expr("CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN " + left + " THEN 'lost' ELSE 'failed' END"),
			"error": jsonOf(why), "finished_at": gorm.Expr("now()"),
		}), ids(ended))
}

// ids reads the ids of jobs.
func ids(all *[]string) pg.Reader { return pg.Each(func(j Job) { *all = append(*all, j.ID) }) }

func sandboxGone(box Sandbox) JobError {
	e := box.EndedError()
	return JobError{
		Code:    "sandbox_" + string(box.State),
		Message: e.Error() + "; it accepts no more jobs; create another sandbox",
	}
}

func jobIDs(jobs []Job) []string {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}

// milliseconds is d as PostgreSQL's interval.
func milliseconds(d time.Duration) any {
	return gorm.Expr("? * interval '1 ms'", d.Milliseconds())
}
