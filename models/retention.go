package models

import (
	"context"
	"fmt"
	"time"
)

// What follows finds its rows in a subquery each that PostgreSQL does not turn into a join: for one it may read whole
// tables, a thousand rows at a time.

// PruneJobs forgets jobs that ended longer than age ago, with their deliveries, and says how many. One whose callback
// is still being tried is kept.
func (s *Store) PruneJobs(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		WITH old AS (
			SELECT id FROM jobs j WHERE finished_at < now() - @age * interval '1 ms'
			  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.job_id = j.id AND d.state = 'pending')
			ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED),
		told AS (DELETE FROM deliveries WHERE job_id = ANY (ARRAY(SELECT id FROM old)))
		DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneOutputs drops what jobs that ended longer than age ago have written and read, and says of how many.
func (s *Store) PruneOutputs(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		UPDATE jobs SET stdout = NULL, stderr = NULL, content = NULL, output_dropped_at = now() WHERE id = ANY (ARRAY(
			SELECT id FROM jobs WHERE finished_at < now() - @age * interval '1 ms' AND coalesce(stdout, stderr, content) IS NOT NULL
			ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED))`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneSandboxes forgets sandboxes that ended longer than age ago, with all that is kept of them, and says how many.
// Those with jobs that are not forgotten yet, or with usage that is not in the hours yet, are kept.
func (s *Store) PruneSandboxes(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		DELETE FROM sandboxes WHERE id = ANY (ARRAY(
			SELECT id FROM sandboxes s WHERE ended_at < now() - @age * interval '1 ms'
			  AND (SELECT j.id FROM jobs j WHERE j.sandbox_id = s.id LIMIT 1) IS NULL
			  AND NOT EXISTS (SELECT 1 FROM usage_facts f WHERE f.sandbox_id = s.id)
			ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED))`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneBuilds forgets builds that began longer than age ago, with their files and logs, and says how many. Those whose
// jobs are not forgotten yet are kept, and those whose image somebody may still need, as it is made again from them on
// other engines.
func (s *Store) PruneBuilds(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		DELETE FROM builds WHERE id = ANY (ARRAY(
			SELECT id FROM builds b WHERE created_at < now() - @age * interval '1 ms'
			  AND (SELECT j.id FROM jobs j WHERE j.id = b.job_id) IS NULL
			  AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.image = b.image)
			  AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.image = b.image AND s.ended_at IS NULL)
			ORDER BY created_at LIMIT @limit FOR UPDATE SKIP LOCKED))`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// told says of an event that what it tells of is still known: a sandbox, a job or a schedule has its history as long as
// it has its row. How often a timeout was set anew is no part of that.
const told = `CASE WHEN e.event = 'sandbox.timeout_set' THEN NULL
	WHEN e.event LIKE 'sandbox.%' THEN (SELECT x.id FROM sandboxes x WHERE x.id = e.sandbox_id)
	WHEN e.event LIKE 'schedule.%' THEN (SELECT x.id FROM schedules x WHERE x.id = e.schedule_id)
	ELSE (SELECT x.id FROM jobs x WHERE x.id = e.job_id) END IS NOT NULL`

// PruneEvents looks at the events behind the one named, limit of them, forgets those older than age of what is not
// known any more, and says how many and behind which one to go on; 0 = all that are so old were looked at. Their ids
// grow with time.
func (s *Store) PruneEvents(
	ctx context.Context,
	behind int64,
	age time.Duration,
	limit int,
) (forgotten int, last int64, err error) {
	var r struct {
		Forgotten int
		Last      int64
	}
	err = s.db.WithContext(ctx).Raw(`
		WITH next AS MATERIALIZED (SELECT id, at < now() - @age * interval '1 ms' AS old, event, sandbox_id, job_id, schedule_id
			FROM events WHERE id > @behind ORDER BY id LIMIT @limit),
		gone AS (DELETE FROM events WHERE id = ANY (ARRAY(SELECT id FROM next e WHERE old AND NOT `+told+`)) RETURNING id)
		SELECT (SELECT count(*) FROM gone) AS forgotten, CASE WHEN count(*) = @limit AND bool_and(old) THEN max(id) ELSE 0 END AS last FROM next`,
		map[string]any{"age": age.Milliseconds(), "behind": behind, "limit": limit}).Scan(&r).Error
	return r.Forgotten, r.Last, err
}

// pruneOld forgets rows of a table whose time is older than age, the oldest first, and says how many.
func (s *Store) pruneOld(ctx context.Context, table, column string, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(fmt.Sprintf(`DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM %[1]s WHERE %[2]s < now() - @age * interval '1 ms' ORDER BY %[2]s LIMIT @limit FOR UPDATE SKIP LOCKED))`, table, column),
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}
