package models

import (
	"context"
	"time"
)

// PruneJobs forgets jobs that ended longer than age ago, with their deliveries, and says how many. One whose callback
// is still being tried is kept.
func (s *Store) PruneJobs(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		WITH old AS (
			SELECT id FROM jobs j WHERE finished_at < now() - @age * interval '1 ms'
			  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.job_id = j.id AND d.state = 'pending')
			ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED),
		told AS (DELETE FROM deliveries USING old WHERE deliveries.job_id = old.id)
		DELETE FROM jobs USING old WHERE jobs.id = old.id`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneOutputs drops what jobs that ended longer than age ago have written and read, and says of how many.
func (s *Store) PruneOutputs(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		UPDATE jobs SET stdout = NULL, stderr = NULL, content = NULL, output_dropped_at = now() WHERE id IN (
			SELECT id FROM jobs WHERE finished_at < now() - @age * interval '1 ms' AND coalesce(stdout, stderr, content) IS NOT NULL
			ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED)`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneSandboxes forgets sandboxes that ended longer than age ago, with all that is kept of them, and says how many. Those
// with jobs that are not forgotten yet, or with usage that is not in the hours yet, are kept.
func (s *Store) PruneSandboxes(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		DELETE FROM sandboxes WHERE id IN (
			SELECT id FROM sandboxes s WHERE ended_at < now() - @age * interval '1 ms'
			  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = s.id)
			  AND NOT EXISTS (SELECT 1 FROM usage_facts f WHERE f.sandbox_id = s.id)
			ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED)`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneBuilds forgets builds that began longer than age ago, with their files and logs, and says how many. Those whose jobs are
// not forgotten yet are kept, and those whose image somebody may still need, as it is made again from them on other engines.
func (s *Store) PruneBuilds(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`
		DELETE FROM builds WHERE id IN (
			SELECT id FROM builds b WHERE created_at < now() - @age * interval '1 ms'
			  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = b.job_id)
			  AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.image = b.image)
			  AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.image = b.image AND s.ended_at IS NULL)
			ORDER BY id LIMIT @limit FOR UPDATE SKIP LOCKED)`,
		map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}

// PruneEvents forgets events older than age, and says how many. Their ids grow with time, so the oldest come first.
func (s *Store) PruneEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT @limit)
		AND at < now() - @age * interval '1 ms'`, map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}
