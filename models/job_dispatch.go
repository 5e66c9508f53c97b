package models

import (
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// dispatchReady takes the tenant's jobs that may run, by priority and age, as far as its window has room, and marks
// them as handed to Redis under a new generation.
func dispatchReady(tx *gorm.DB, tenantID string, window int) (out []Dispatch, err error) {
	if err = dispatchLater(tx, tenantID, window, pg.Into(&out)); err == nil {
		err = pg.Flush(tx)
	}
	return out, err
}

// dispatchLater is dispatchReady, left to the transaction: read takes what it answers, of type Dispatch. It is the only
// place that hands jobs over. The window bounds what Redis holds of each lane and no worker has claimed: a job that
// runs has left it. Jobs of a provider whose workers claim none, as they hang or are gone, may fill it: then those of a
// provider that has none in there are handed over beside it, a few at a time.
func dispatchLater(tx *gorm.DB, tenantID string, window int, read pg.Reader) error {
	return pg.Enqueue(pg.Build(tx).Raw(`
		WITH counted AS MATERIALIZED (
			SELECT lane, (SELECT count(*) FROM (SELECT FROM jobs WHERE tenant_id = @tenant AND job_lane(kind) = lane
				AND state = 'queued' AND dispatched_at IS NOT NULL LIMIT @window) AS unclaimed) AS taken
			FROM unnest(CAST('{run,create,end,call}' AS text[])) AS lanes (lane)),
		room AS MATERIALIZED (
			SELECT lane, taken, CASE WHEN taken >= @window
				AND (SELECT min(provider) <> max(provider) FROM sandboxes WHERE tenant_id = @tenant AND ended_at IS NULL)
				THEN ARRAY(SELECT DISTINCT s.provider FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
					WHERE j.tenant_id = @tenant AND job_lane(j.kind) = lane AND j.state = 'queued' AND j.dispatched_at IS NOT NULL)
				END AS holders -- providers that have some in a full window, where others may have jobs
			FROM counted),
		picked AS (
			SELECT ready.* FROM room, LATERAL (
				SELECT j.id, CASE WHEN s.node_id IS NULL THEN s.provider ELSE 'node-' || s.node_id END AS queue
				FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
				WHERE j.tenant_id = @tenant AND job_lane(j.kind) = lane AND j.state = 'queued' AND j.ready_at <= now()
					AND j.dispatched_at IS NULL
				ORDER BY j.priority DESC, j.ready_at, j.id
				LIMIT @window - taken
				FOR UPDATE OF j SKIP LOCKED) AS ready),
		beside AS (
			SELECT ready.* FROM room, LATERAL (
				SELECT j.id, CASE WHEN s.node_id IS NULL THEN s.provider ELSE 'node-' || s.node_id END AS queue
				FROM sandboxes s JOIN jobs j ON j.sandbox_id = s.id
				WHERE holders IS NOT NULL AND s.tenant_id = @tenant AND s.ended_at IS NULL AND s.provider <> ALL (holders)
					AND job_lane(j.kind) = lane AND j.state = 'queued' AND j.ready_at <= now() AND j.dispatched_at IS NULL
				ORDER BY j.priority DESC, j.ready_at, j.id
				LIMIT 16
				FOR UPDATE OF j SKIP LOCKED) AS ready)
		UPDATE jobs SET dispatched_at = now(), generation = generation + 1, queue = chosen.queue
		FROM (SELECT * FROM picked UNION ALL SELECT * FROM beside) AS chosen WHERE jobs.id = chosen.id
		RETURNING jobs.id, jobs.tenant_id, jobs.kind, jobs.generation, jobs.queue`,
		map[string]any{"tenant": tenantID, "window": window}), read)
}

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
			"state": gorm.Expr(
				"CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN " + left + " THEN 'lost' ELSE 'failed' END",
			),
			"error":       jsonOf(why),
			"finished_at": gorm.Expr("now()"),
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
