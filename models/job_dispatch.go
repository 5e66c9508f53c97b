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
