package models

import (
	"context"
	"time"
)

// callLife is how long a job that has ended waits for the call to be repeated whose caller had given up.
const callLife = time.Minute

// JoinCall returns the job of the same call on a tenant's sandbox whose caller has given up, or "". That job waits or
// runs, or it ended within the last minute without anybody having seen its result. The caller has it for himself until
// patience is over, then the next one may join.
func (s *Store) JoinCall(
	ctx context.Context,
	tenantID, sandboxID string,
	call []byte,
	patience time.Duration,
) (jobID string, err error) {
	return scanned[string](s.db.WithContext(ctx).Raw(`
		UPDATE jobs SET joinable_at = now() + make_interval(secs => ?) WHERE id = (
			SELECT id FROM jobs WHERE tenant_id = ? AND sandbox_id = ? AND call = ? AND joinable_at <= now()
				AND (finished_at IS NULL OR finished_at >= joinable_at)
				AND (finished_at IS NULL OR finished_at > now() - make_interval(secs => ?))
			ORDER BY id LIMIT 1 FOR UPDATE)
		RETURNING id`, patience.Seconds(), tenantID, sandboxID, call, callLife.Seconds()))
}

// CallGivenUp says that the caller does not wait any more: the same call may join at once, also where the job has ended
// meanwhile.
func (s *Store) CallGivenUp(ctx context.Context, tenantID, jobID string) error {
	return s.db.WithContext(ctx).
		Exec("UPDATE jobs SET joinable_at = least(joinable_at, finished_at, now()) WHERE tenant_id = ? AND id = ?",
			tenantID, jobID).
		Error
}

// CallAnswered says that the caller has seen how a job ended: nobody joins it any more.
func (s *Store) CallAnswered(ctx context.Context, tenantID, jobID string) error {
	return s.db.WithContext(ctx).
		Model(&Job{}).
		Where("tenant_id = ? AND id = ?", tenantID, jobID).
		Update("joinable_at", nil).
		Error
}
