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

// PruneEvents forgets events older than age, and says how many. Their ids grow with time, so the oldest come first.
func (s *Store) PruneEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	res := s.db.WithContext(ctx).Exec(`DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT @limit)
		AND at < now() - @age * interval '1 ms'`, map[string]any{"age": age.Milliseconds(), "limit": limit})
	return int(res.RowsAffected), res.Error
}
