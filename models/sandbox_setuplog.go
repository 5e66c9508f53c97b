package models

import (
	"context"
)

// AppendSetupLog adds to the log of what prepares a new sandbox, as long as the attempt owns its job.
func (s *Store) AppendSetupLog(ctx context.Context, h AttemptRef, sandboxID, step string, data []byte) error {
	return s.db.WithContext(ctx).Exec(`INSERT INTO setup_logs (sandbox_id, step, data) SELECT ?, ?, ?
		WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ? AND attempt = ? AND state = 'running')`,
		sandboxID, step, data, h.ID, h.Attempt).Error
}

// SetupLogged is how many bytes of a step's output are in the log.
func (s *Store) SetupLogged(ctx context.Context, sandboxID, step string) (n int64, err error) {
	return scanned[int64](s.db.WithContext(ctx).
		Raw("SELECT coalesce(sum(length(data)), 0) FROM setup_logs WHERE sandbox_id = ? AND step = ?",
			sandboxID, step))
}

// SetupLog returns the log of what prepared a sandbox, after a piece of it.
func (s *Store) SetupLog(ctx context.Context, sandboxID string, after int64) ([]LogChunk, error) {
	return findAll[LogChunk](s.db.WithContext(ctx).
		Table("setup_logs").
		Where("sandbox_id = ? AND seq > ?", sandboxID, after).
		Order("seq"))
}
