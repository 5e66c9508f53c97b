package models

import (
	"context"
	"math/rand/v2"
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
	Endpoint      int64  // stands for the URL's host and port
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
		INSERT INTO deliveries (id, tenant_id, job_id, event, url, endpoint, state)
		SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), tenant_id, id, 'job.' || state, callback_url,
			delivery_endpoint(callback_url), 'pending'
		FROM jobs WHERE id = ANY (CAST(? AS text[])) AND callback_url IS NOT NULL ON CONFLICT DO NOTHING`, idArray(ended))
	return res.RowsAffected > 0, res.Error
}

// DeliveryTask names a delivery attempt for Redis.
type DeliveryTask struct {
	ID      string
	Attempt int  // that the task is to be: one more than were made
	Again   bool // it was handed over before, and nobody has taken it up
}

const (
	// DeliveryShare is how many deliveries of one tenant are handed over or under way at once.
	DeliveryShare = 8
	// EndpointShare is how many of these go to one host: one that does not answer leaves the tenant's others some.
	EndpointShare = 6
	// endpointsLooked is how many hosts of one tenant a look goes through, from any one on.
	endpointsLooked = 100
)

// DispatchDeliveries marks due deliveries of a tenant, or of all ("") in turns, as handed to Redis, as far as their
// shares go. One that nobody took up is handed over again.
func (s *Store) DispatchDeliveries(ctx context.Context, tenantID string, limit int) ([]DeliveryTask, error) {
	return scanned[[]DeliveryTask](s.db.WithContext(ctx).Raw(`
		WITH RECURSIVE tenants AS (
			(SELECT tenant_id FROM deliveries WHERE state = 'pending' AND (@tenant = '' OR tenant_id = @tenant) ORDER BY tenant_id LIMIT 1)
			UNION ALL
			SELECT (SELECT d.tenant_id FROM deliveries d WHERE d.state = 'pending' AND d.tenant_id > t.tenant_id ORDER BY d.tenant_id LIMIT 1)
			FROM tenants t WHERE t.tenant_id IS NOT NULL AND @tenant = ''),
		busy AS (
			SELECT tenant_id, endpoint, count(*) AS busy FROM deliveries WHERE state = 'pending'
				AND (dispatched_at IS NOT NULL OR running_until IS NOT NULL) AND (dispatched_at IS NOT NULL OR running_until > now())
				AND (@tenant = '' OR tenant_id = @tenant) GROUP BY tenant_id, endpoint),
		waiting AS (
			SELECT t.tenant_id, d.id, d.next_attempt_at, d.nth FROM tenants t
			CROSS JOIN LATERAL (`+endpointsOf+`) e
			CROSS JOIN LATERAL (SELECT id, next_attempt_at, row_number() OVER (ORDER BY next_attempt_at, id) AS nth FROM (
				SELECT id, next_attempt_at FROM deliveries WHERE state = 'pending' AND tenant_id = t.tenant_id AND endpoint = e.endpoint
					AND next_attempt_at <= now() AND dispatched_at IS NULL ORDER BY next_attempt_at LIMIT @each) oldest) d
			WHERE d.nth + coalesce((SELECT busy FROM busy b WHERE b.tenant_id = t.tenant_id AND b.endpoint = e.endpoint), 0) <= @each),
		placed AS (
			SELECT id, next_attempt_at, tenant_id,
			row_number() OVER (PARTITION BY tenant_id ORDER BY nth, next_attempt_at) AS place FROM waiting),
		chosen AS (
			(SELECT p.id FROM placed p WHERE p.place + coalesce((SELECT sum(busy) FROM busy b WHERE b.tenant_id = p.tenant_id), 0) <= @share
				ORDER BY p.place, p.next_attempt_at LIMIT @limit)
			UNION ALL
			(SELECT id FROM deliveries WHERE state = 'pending' AND dispatched_at < now() - interval '5 s'
				AND (@tenant = '' OR tenant_id = @tenant) LIMIT @limit)),
		due AS (
			SELECT id, dispatched_at IS NOT NULL AS again FROM deliveries WHERE id = ANY (ARRAY(SELECT id FROM chosen))
			  AND state = 'pending' AND next_attempt_at <= now() AND (dispatched_at IS NULL OR dispatched_at < now() - interval '5 s')
			FOR UPDATE SKIP LOCKED)
		UPDATE deliveries d SET dispatched_at = now() FROM due WHERE d.id = due.id
		RETURNING d.id, d.attempt + 1 AS attempt, due.again`, map[string]any{
		"tenant": tenantID, "limit": limit, "share": DeliveryShare, "each": EndpointShare, "hosts": endpointsLooked,
		"from": int64(rand.Uint64()),
	}))
}

// endpointsOf finds the hosts that a tenant t has deliveries for, from a random one on and round: else those that are
// many, and wait for days to be tried again, could keep others out of sight. Each is one look into the index.
const endpointsOf = `
	WITH RECURSIVE round AS (
		SELECT coalesce(
			(SELECT d.endpoint FROM deliveries d WHERE d.state = 'pending' AND d.tenant_id = t.tenant_id AND d.endpoint >= @from ORDER BY d.endpoint LIMIT 1),
			(SELECT d.endpoint FROM deliveries d WHERE d.state = 'pending' AND d.tenant_id = t.tenant_id ORDER BY d.endpoint LIMIT 1)) AS endpoint
		UNION
		SELECT coalesce(
			(SELECT d.endpoint FROM deliveries d WHERE d.state = 'pending' AND d.tenant_id = t.tenant_id AND d.endpoint > r.endpoint ORDER BY d.endpoint LIMIT 1),
			(SELECT d.endpoint FROM deliveries d WHERE d.state = 'pending' AND d.tenant_id = t.tenant_id ORDER BY d.endpoint LIMIT 1))
		FROM round r)
	SELECT endpoint FROM round WHERE endpoint IS NOT NULL LIMIT @hosts`

// DeliveryTo says whose a delivery is and where it goes to.
func (s *Store) DeliveryTo(ctx context.Context, id string) (tenantID string, endpoint int64, err error) {
	var d Delivery
	err = s.db.WithContext(ctx).Select("tenant_id", "endpoint").Where("id = ?", id).Take(&d).Error
	return d.TenantID, d.Endpoint, notFound(err)
}

// PutBackDelivery lets a delivery that was handed over be handed over again, when its share has room.
func (s *Store) PutBackDelivery(ctx context.Context, t DeliveryTask) error {
	return s.db.WithContext(ctx).
		Model(&Delivery{}).
		Where("id = ? AND attempt = ? AND state = 'pending'", t.ID, t.Attempt-1).
		UpdateColumn("dispatched_at", nil).
		Error
}

// ClaimDelivery begins an attempt. If its worker dies, the delivery is due again after the given time.
func (s *Store) ClaimDelivery(ctx context.Context, t DeliveryTask, within time.Duration) (Delivery, error) {
	var d Delivery
	res := s.db.WithContext(ctx).Raw(`
		UPDATE deliveries SET attempt = @attempt, dispatched_at = NULL, next_attempt_at = now() + @within * interval '1 ms',
			running_until = now() + @within * interval '1 ms'
		WHERE id = @id AND attempt = @attempt - 1 AND state = 'pending' RETURNING *`,
		map[string]any{"id": t.ID, "attempt": t.Attempt, "within": within.Milliseconds()}).Scan(&d)
	return d, affected(res, ErrStale)
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
	set := map[string]any{"last_status": r.Status, "last_error": r.Error, "running_until": nil}
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
func (s *Store) Deliveries(ctx context.Context, tenantID, jobID string) ([]Delivery, error) {
	return findAll[Delivery](s.db.WithContext(ctx).Where("tenant_id = ? AND job_id = ?", tenantID, jobID))
}
