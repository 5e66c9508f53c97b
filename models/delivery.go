package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// Delivery is one callback to be made for the end of a job.
type Delivery struct {
	ID            string `gorm:"primaryKey"` // the webhook-id, the same on every attempt
	TenantID      string
	JobID         string
	Event         string
	URL           string
	State         string // pending, delivered or failed
	Attempt       int
	NextAttemptAt time.Time
	LastStatus    *int
	LastError     *string
	CreatedAt     time.Time `gorm:"autoCreateTime:false;default:now()"`
	DeliveredAt   *time.Time
}

// recordDeliveries writes down the callbacks of jobs that have ended, once per job.
func recordDeliveries(tx *gorm.DB, ended []string) (bool, error) {
	res := tx.Exec(`
		INSERT INTO deliveries (id, tenant_id, job_id, event, url, state)
		SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), tenant_id, id, 'job.' || state, callback_url, 'pending'
		FROM jobs WHERE id IN ? AND callback_url IS NOT NULL ON CONFLICT DO NOTHING`, ended)
	return res.RowsAffected > 0, res.Error
}

// DeliveryTask names a delivery attempt for Redis.
type DeliveryTask struct {
	ID      string
	Attempt int  // that the task is to be: one more than were made
	Again   bool // it was handed over before, and nobody has taken it up
}

// DispatchDeliveries marks due deliveries as handed to Redis. One that nobody took up is handed over again.
func (s *Store) DispatchDeliveries(ctx context.Context, limit int) ([]DeliveryTask, error) {
	var out []DeliveryTask
	err := s.db.WithContext(ctx).Raw(`
		WITH due AS (
			SELECT id, dispatched_at IS NOT NULL AS again FROM deliveries WHERE state = 'pending' AND next_attempt_at <= now()
			  AND (dispatched_at IS NULL OR dispatched_at < now() - interval '5 s')
			ORDER BY next_attempt_at LIMIT ? FOR UPDATE SKIP LOCKED)
		UPDATE deliveries d SET dispatched_at = now() FROM due WHERE d.id = due.id
		RETURNING d.id, d.attempt + 1 AS attempt, due.again`, limit).Scan(&out).Error
	return out, err
}

// ClaimDelivery begins an attempt. If its worker dies, the delivery is due again after the given time.
func (s *Store) ClaimDelivery(ctx context.Context, t DeliveryTask, within time.Duration) (Delivery, error) {
	var d Delivery
	res := s.db.WithContext(ctx).Raw(`
		UPDATE deliveries SET attempt = @attempt, dispatched_at = NULL, next_attempt_at = now() + @within * interval '1 ms'
		WHERE id = @id AND attempt = @attempt - 1 AND state = 'pending' RETURNING *`,
		map[string]any{"id": t.ID, "attempt": t.Attempt, "within": within.Milliseconds()}).Scan(&d)
	if res.Error != nil {
		return d, res.Error
	}
	if res.RowsAffected == 0 {
		return d, ErrStale
	}
	return d, nil
}

// DeliveryResult is how one attempt went.
type DeliveryResult struct {
	Status  int    // HTTP status; 0 = no answer
	Error   string // empty = delivered
	RetryIn time.Duration
	GiveUp  bool
}

// FinishDelivery writes an attempt's result down.
func (s *Store) FinishDelivery(ctx context.Context, d Delivery, r DeliveryResult) error {
	set := map[string]any{"last_status": r.Status, "last_error": r.Error}
	switch {
	case r.Error == "":
		set["state"], set["delivered_at"] = "delivered", gorm.Expr("now()")
	case r.GiveUp:
		set["state"] = "failed"
	default:
		set["next_attempt_at"] = gorm.Expr("now() + ?", milliseconds(r.RetryIn))
	}
	return s.db.WithContext(ctx).Model(&Delivery{}).
		Where("id = ? AND attempt = ? AND state = 'pending'", d.ID, d.Attempt).Updates(set).Error
}

// Deliveries returns the callbacks of a job.
func (s *Store) Deliveries(ctx context.Context, tenant, job string) ([]Delivery, error) {
	var list []Delivery
	err := s.db.WithContext(ctx).Where("tenant_id = ? AND job_id = ?", tenant, job).Find(&list).Error
	return list, err
}
