package models

import (
	"context"
	"encoding/json"
	"time"
)

// JobState is where a job stands. Terminal states never change.
type JobState string

// The states of a job. A program that exits 1 has succeeded as a job; failed means that the platform or the target
// could not do it; lost means that nobody can know how it ended; expired means that its queue deadline passed.
const (
	Queued    JobState = "queued"
	Running   JobState = "running"
	Succeeded JobState = "succeeded"
	Failed    JobState = "failed"
	TimedOut  JobState = "timed_out"
	Cancelled JobState = "cancelled"
	Lost      JobState = "lost"
	Expired   JobState = "expired"
)

// Terminal says whether the job has ended.
func (s JobState) Terminal() bool { return s != Queued && s != Running }

// JobError is why a job did not succeed.
type JobError struct {
	Code      string `json:"code" doc:"Stable error code, such as file_not_found"`
	Message   string `json:"message" doc:"What happened and what to do"`
	Retryable bool   `json:"retryable" doc:"Whether the same request may succeed later"`
}

// Job is one operation on a sandbox.
type Job struct {
	ID                string `gorm:"primaryKey"`
	TenantID          string
	SandboxID         string
	Kind              string
	State             JobState
	Seq               int64
	Parallel          bool
	Priority          int
	Actor             string
	Args              json.RawMessage `gorm:"type:jsonb"`
	Input             []byte          // dropped at the end of the job where it is larger than 16 KiB
	InputDropped      bool
	Bytes             int64 // of args and input
	TimeoutMS         int64 `gorm:"column:timeout_ms"`
	QueueDeadline     *time.Time
	ExpireIn          time.Duration `gorm:"-"` // of a new job: its queue deadline from now on; 0 = it has none
	CallbackURL       *string
	RetryOf           *string
	Needs             *string // the job of the same sandbox without whose success this one must not begin
	MaxAttempts       int
	ReadyAt           *time.Time
	DispatchedAt      *time.Time
	Queue             *string
	Generation        int
	Attempt           int
	Handovers         int  // attempts that ended without a failure
	Begun             bool // what it runs may have been started by an attempt that is over
	NodeID            *string
	LeaseUntil        *time.Time
	CancelRequestedAt *time.Time
	CancelledBy       *string
	OutputDroppedAt   *time.Time
	RequeueReason     *string
	Result            json.RawMessage `gorm:"type:jsonb"`
	Stdout            []byte
	Stderr            []byte
	Content           []byte
	Error             *JobError `gorm:"serializer:json"`
	QueuedAt          time.Time `gorm:"default:now()"`
	StartedAt         *time.Time
	FinishedAt        *time.Time
	ProviderMS        *int64        `gorm:"column:provider_ms"`
	Unread            int           `gorm:"-"` // bytes of result and output that Store.Job has left
	Call              []byte        // what a caller asked for who may join it: see Store.JoinCall
	JoinIn            time.Duration `gorm:"-"` // of a new job with a Call: when it may be joined, from now on
	JoinableAt        *time.Time
	PausedMS          int64 `gorm:"column:paused_ms"` // how long the sandbox of a program was paused since it started
	// KeptEnv is what Store.Env had of the sandbox when the job was claimed.
	KeptEnv map[string]string `gorm:"-"`
}

// Tries is the number of attempts with this one that were not merely handed over.
func (j Job) Tries() int { return j.Attempt - j.Handovers }

// Timeout is how long the job may run.
func (j Job) Timeout() time.Duration { return time.Duration(j.TimeoutMS) * time.Millisecond }

// JobEnd returns how a tenant's job ended, without its bytes, or ErrNotFound.
func (s *Store) JobEnd(ctx context.Context, tenantID, id string) (Job, error) {
	return takeOne[Job](s.db.WithContext(ctx).Select("id", "sandbox_id", "kind", "state", "result", "error").
		Where("tenant_id = ? AND id = ?", tenantID, id))
}

// EndFilter selects ends of a sandbox's jobs; empty fields match everything.
type EndFilter struct {
	From, Until time.Time // both included
	Failed      bool      // not of those that succeeded
	Text        string    // in the job's kind and state, which a space parts
	Newest      bool      // first
	Limit       int
}

// JobEnds lists the jobs of a tenant's sandbox that have ended, by the time of that, without arguments, results and
// output.
func (s *Store) JobEnds(ctx context.Context, tenantID, sandboxID string, f EndFilter) ([]Job, error) {
	q := s.db.WithContext(ctx).
		Select(jobColumns()).
		Where("tenant_id = ? AND sandbox_id = ? AND finished_at IS NOT NULL", tenantID, sandboxID)
	q = whereSet(q, "finished_at >= ?", f.From)
	q = whereSet(q, "finished_at <= ?", f.Until)
	q = whereSet(q, "strpos(kind || ' ' || state, ?) > 0", f.Text)
	if f.Failed {
		q = q.Where("state <> ?", Succeeded)
	}
	order := "finished_at, id"
	if f.Newest {
		order = "finished_at DESC, id DESC"
	}
	return findAll[Job](q.Order(order).Limit(f.Limit))
}
