package models

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
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

// Kinds of security events.
const (
	LoginFailed    = "login_failed"    // a wrong name or password
	LoginBlocked   = "login_blocked"   // too many of them, of an account or from an address
	KeyRefused     = "key_refused"     // an unknown, revoked or expired key or token
	PathRefused    = "path_refused"    // a path outside of the sandbox's directories, or a malformed one
	EgressDenied   = "egress_denied"   // a connection that the policy of a sandbox or the operator does not allow
	LimitReached   = "limit_reached"   // a request beyond a limit of its tenant or user
	OutOfMemory    = "out_of_memory"   // a program or sandbox that the kernel has ended
	OutOfDisk      = "out_of_disk"     // a write that found no room in its sandbox
	SandboxFailing = "sandbox_failing" // five jobs of one sandbox that broke, were lost or timed out, within a minute
)

// SecurityKinds are all kinds.
func SecurityKinds() []string {
	return []string{
		LoginFailed,
		LoginBlocked,
		KeyRefused,
		PathRefused,
		EgressDenied,
		LimitReached,
		OutOfMemory,
		OutOfDisk,
		SandboxFailing,
	}
}

// SecurityEvent is how often something of a kind has happened to a tenant in a minute, and what it was the last time.
type SecurityEvent struct {
	ID        int64     `json:"-"`
	TenantID  string    // empty = nobody's, such as of callers without a key
	Kind      string    // one of SecurityKinds
	Minute    time.Time `json:"-"`
	Times     int64
	LastAt    time.Time `json:"-"`
	Client    string
	Actor     string
	SandboxID string
	Detail    string
}

// AddSecurityEvents counts events in the minute of now. An event of a sandbox without a tenant is the tenant's of the
// sandbox; those of sandboxes that are not there any more are left out.
func (s *Store) AddSecurityEvents(ctx context.Context, events []SecurityEvent) error {
	if len(events) == 0 {
		return nil
	}
	slices.SortFunc(events, func(x, y SecurityEvent) int { // one order for all processes
		return cmp.Or(cmp.Compare(x.TenantID, y.TenantID), cmp.Compare(x.Kind, y.Kind))
	})
	return s.db.WithContext(ctx).Exec(`
		WITH e AS (SELECT r.*, coalesce(b.tenant_id, r."TenantID") AS tenant FROM jsonb_to_recordset(?::jsonb)
				AS r("TenantID" text, "Kind" text, "Times" bigint, "Client" text, "Actor" text, "SandboxID" text, "Detail" text)
			LEFT JOIN sandboxes b ON b.id = r."SandboxID" AND r."TenantID" = ''
			WHERE r."SandboxID" = '' OR r."TenantID" <> '' OR b.id IS NOT NULL)
		INSERT INTO security_events AS s (tenant_id, kind, minute, times, client, actor, sandbox_id, detail)
		SELECT tenant, "Kind", date_trunc('minute', now()), sum("Times"), max("Client"), max("Actor"), max("SandboxID"), max("Detail")
		FROM e GROUP BY 1, 2 ORDER BY 1, 2
		ON CONFLICT (tenant_id, kind, minute) DO UPDATE SET times = s.times + excluded.times, last_at = excluded.last_at,
			client = excluded.client, actor = excluded.actor, sandbox_id = excluded.sandbox_id, detail = excluded.detail`,
		string(must(json.Marshal(events)))).Error
}

// SecurityFilter selects security events; empty fields match everything.
type SecurityFilter struct {
	Tenant   string
	All      bool // of all tenants and of nobody
	Kind     string
	From, To time.Time
	Before   int64 // the last id of the page before; 0 = from the newest
	Limit    int
}

// SecurityEvents lists security events, newest first.
func (s *Store) SecurityEvents(ctx context.Context, f SecurityFilter) ([]SecurityEvent, error) {
	q := s.db.WithContext(ctx).Table("security_events")
	if !f.All {
		q = q.Where("tenant_id = ?", f.Tenant)
	}
	q = whereSet(q, "kind = ?", f.Kind)
	q = whereSet(q, "minute >= date_trunc('minute', ?::timestamptz)", f.From)
	q = whereSet(q, "minute < ?", f.To)
	q = whereSet(q, "id < ?", max(0, f.Before))
	return findAll[SecurityEvent](q.Order("id DESC").Limit(f.Limit))
}

// PruneSecurityEvents forgets security events older than age, and says how many.
func (s *Store) PruneSecurityEvents(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "security_events", "minute", age, limit)
}
