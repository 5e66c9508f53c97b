package models

import (
	"context"
	"encoding/json"
	"time"
)

// Event is something that happened to a sandbox or to one of its jobs. Triggers write events in the transaction of the
// change they tell of, so there is none without its change and no change without its event.
type Event struct {
	ID        int64 `gorm:"primaryKey"`
	At        time.Time
	TenantID  string
	SandboxID string
	JobID     *string // the job that it is about, or that brought it about
	// ScheduleID is the schedule that it is about; then SandboxID is the sandbox that it works on, or empty.
	ScheduleID *string
	Event      string // such as sandbox.running or job.failed
	Actor      string // an API key's id, scheduler, platform or worker:<node>
	Reason     *string
	Detail     json.RawMessage `gorm:"type:jsonb"`
}

// EventFilter selects events; empty fields match everything.
type EventFilter struct {
	Sandbox  string
	Job      string
	Schedule string
	Before   int64 // the last id of the page before; 0 = from the newest
	Limit    int
}

// Events lists what happened to a tenant's sandbox or job, newest first. They outlive what they tell of.
func (s *Store) Events(ctx context.Context, tenantID string, f EventFilter) ([]Event, error) {
	q := s.db.WithContext(ctx).Where("tenant_id = ?", tenantID)
	q = whereSet(q, "sandbox_id = ?", f.Sandbox)
	q = whereSet(q, "job_id = ?", f.Job)
	q = whereSet(q, "schedule_id = ?", f.Schedule)
	q = whereSet(q, "id < ?", max(0, f.Before))
	return findAll[Event](q.Order("id DESC").Limit(f.Limit))
}
