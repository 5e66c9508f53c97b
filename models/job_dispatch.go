package models

import (
	"gorm.io/gorm"

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
// runs has left it.
func dispatchLater(tx *gorm.DB, tenantID string, window int, read pg.Reader) error {
	return pg.Enqueue(pg.Build(tx).Raw(`
		WITH picked AS (
			SELECT ready.* FROM unnest(CAST('{run,create,end,call}' AS text[])) AS lanes (lane), LATERAL (
				SELECT j.id, CASE WHEN s.node_id IS NULL THEN s.provider ELSE 'node-' || s.node_id END AS queue
				FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
				WHERE j.tenant_id = @tenant AND job_lane(j.kind) = lane AND j.state = 'queued' AND j.ready_at <= now() AND j.dispatched_at IS NULL
				ORDER BY j.priority DESC, j.ready_at, j.id
				LIMIT @window - (SELECT count(*) FROM (SELECT FROM jobs WHERE tenant_id = @tenant AND job_lane(kind) = lane
					AND state = 'queued' AND dispatched_at IS NOT NULL LIMIT @window) AS unclaimed)
				FOR UPDATE OF j SKIP LOCKED) AS ready)
		UPDATE jobs SET dispatched_at = now(), generation = generation + 1, queue = picked.queue
		FROM picked WHERE jobs.id = picked.id
		RETURNING jobs.id, jobs.tenant_id, jobs.kind, jobs.generation, jobs.queue`,
		map[string]any{"tenant": tenantID, "window": window}), read)
}
