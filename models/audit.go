package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// AuditEntry is one row of the audit log: a change that somebody asked for over HTTP, or a login.
type AuditEntry struct {
	ID        int64     `gorm:"primaryKey" json:"-"`
	At        time.Time `gorm:"autoCreateTime:false;default:now()" json:"-"`
	TenantID  string
	UserID    string // whose key or login it is; empty = nobody's
	Actor     string // the id of the API key or of the login
	Client    string // the address that the request came from
	RequestID string
	Action    string // method and route
	Target    string // the id or name of what it is about
	JobID     string // that was submitted
	Status    *int   // of the answer; nil = it is not known
	Code      string // of the error
	Times     int    `gorm:"default:1"` // requests that the row stands for

	// Written says that the entry is in the log, with its outcome: Submit has put it there.
	Written bool `gorm:"-" json:"-"`
}

// TableName implements GORM's naming.
func (AuditEntry) TableName() string { return "audit_log" }

// audit writes the entries of the group's submissions down, each with its job. Accepted is the outcome of all of them:
// 202.
func (b *batch) audit() error {
	var all []AuditEntry
	for _, p := range b.open() {
		if p.Audit == nil {
			continue
		}
		e := *p.Audit
		e.TenantID, e.Target, e.JobID = p.TenantID, p.SandboxID, p.answer()
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil
	}
	of := func(f func(AuditEntry) string) []string { return column(all, f) }
	return pg.EnqueueRaw(
		b.tx,
		`INSERT INTO audit_log (tenant_id, user_id, actor, client, request_id, action, target, job_id, status)
		SELECT *, 202 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])`,
		[]any{
			of(func(e AuditEntry) string { return e.TenantID }), of(func(e AuditEntry) string { return e.UserID }),
			of(func(e AuditEntry) string { return e.Actor }), of(func(e AuditEntry) string { return e.Client }),
			of(func(e AuditEntry) string { return e.RequestID }), of(func(e AuditEntry) string { return e.Action }),
			of(func(e AuditEntry) string { return e.Target }), of(func(e AuditEntry) string { return e.JobID }),
		},
		nil,
	)
}

// Audit appends an entry and sets its ID. One without a status is to get its outcome from AuditOutcomes.
func (s *Store) Audit(ctx context.Context, e *AuditEntry) error {
	return s.db.WithContext(ctx).Create(e).Error
}

// AuditOutcome is what became of an entry.
type AuditOutcome struct {
	ID     int64
	Status int
	Code   string
	Target string // empty = as the entry has it
}

// AuditResults gives entries their outcomes, and appends others that are complete, in one trip.
func (s *Store) AuditResults(ctx context.Context, outcomes []AuditOutcome, complete []AuditEntry) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		if len(outcomes) > 0 {
			err := pg.Enqueue(
				pg.Build(tx).
					Exec(`UPDATE audit_log a SET status = o."Status", code = o."Code", target = coalesce(nullif(a.target, ''), o."Target")
				FROM jsonb_to_recordset(?::jsonb) AS o ("ID" bigint, "Status" int, "Code" text, "Target" text)
				WHERE a.id = o."ID" AND a.status IS NULL`, string(must(json.Marshal(outcomes)))),
				nil,
			)
			if err != nil {
				return err
			}
		}
		if len(complete) == 0 {
			return nil
		}
		return pg.Enqueue(pg.Build(tx).Create(&complete), nil)
	})
}

// Outcomes of entries.
const (
	AuditDone    = "done"    // the answer's status is below 400
	AuditRefused = "refused" // below 500
	AuditFailed  = "failed"
	AuditUnknown = "unknown" // the process ended before its answer
)

// AuditFilter selects entries; empty fields match everything.
type AuditFilter struct {
	Tenant   string // empty = of all tenants
	From, To time.Time
	Actor    string // the id of a key, login or user
	Action   string
	Target   string // also the id of a job
	Outcome  string
	Before   int64 // the last id of the page before; 0 = from the newest
	Limit    int
}

// auditPatience is how long PostgreSQL may work on one question about the audit log.
const auditPatience = 10 * time.Second

// AuditLog lists entries, newest first. Error: ErrTooMuch.
func (s *Store) AuditLog(ctx context.Context, f AuditFilter) (list []AuditEntry, err error) {
	err = s.limited(ctx, auditPatience, func(tx *gorm.DB) error {
		q := whereSet(tx, "tenant_id = ?", f.Tenant)
		q = whereSet(q, "action = ?", f.Action)
		if f.Actor != "" {
			q = q.Where("(actor = ? OR user_id = ?)", f.Actor, f.Actor)
		}
		if f.Target != "" {
			q = q.Where("(target = ? AND target <> '' OR job_id = ?)", f.Target, f.Target)
		}
		q = whereSet(q, "at >= ?", f.From)
		q = whereSet(q, "at < ?", f.To)
		q = whereSet(q, "id < ?", max(0, f.Before))
		if where := outcomeIs[f.Outcome]; where != "" {
			q = q.Where(where)
		}
		return q.Order("id DESC").Limit(f.Limit).Find(&list).Error
	})
	return list, err
}

//nolint:gochecknoglobals // a constant
var outcomeIs = map[string]string{
	AuditDone: "status < 400", AuditRefused: "status BETWEEN 400 AND 499", AuditFailed: "status >= 500",
	AuditUnknown: "status IS NULL",
}

// PruneAudit forgets entries older than age, the oldest first, and says how many. Nothing else may delete any.
func (s *Store) PruneAudit(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := tx.Exec("SET LOCAL sandyard.retention = 'on'").Error; err != nil {
			return err
		}
		res := tx.Exec(`DELETE FROM audit_log WHERE id = ANY (ARRAY(
			SELECT id FROM (SELECT id, at FROM audit_log ORDER BY id LIMIT ?) oldest WHERE at < now() - ? * interval '1 ms'))`,
			limit, age.Milliseconds())
		n = int(res.RowsAffected)
		return res.Error
	})
	return n, err
}
