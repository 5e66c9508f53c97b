package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// UsageQuery asks what was used in the hours that begin at From or later and before To.
type UsageQuery struct {
	Tenant string // empty = all of them
	From   time.Time
	To     time.Time
	By     []string // some of hour, day, tenant, user, template, provider
	After  []string // the Key of the last row of the page before
	Limit  int
}

// Usage is what was used in one group. A dimension that does not tell groups apart is empty.
type Usage struct {
	Start    string // of the hour or day, as RFC 3339 writes it
	Tenant   string
	User     string
	Template string
	Provider string

	RunningSeconds   float64 // of sandboxes
	PausedSeconds    float64
	CPUSeconds       float64 // allocated while they ran
	MemoryGiBSeconds float64 `gorm:"column:memory_gib_seconds"` // allocated while they ran or were paused
	CPUUsedSeconds   float64 `gorm:"column:cpu_used_seconds"`   // measured, like what follows
	MemoryUsed       float64 `gorm:"column:memory_used"`        // gibibytes times seconds
	MemoryPeakMB     float64 `gorm:"column:memory_peak_mb"`     // of any one sandbox
	Sent             int64   // bytes to the outside
	Received         int64
	Jobs             json.RawMessage // []JobUsage
}

// Key names a group among all.
func (u Usage) Key() []string { return []string{u.Start, u.Tenant, u.User, u.Template, u.Provider} }

// JobUsage counts jobs of one kind with one outcome.
type JobUsage struct {
	Kind        string  `json:"kind"`
	Outcome     string  `json:"outcome" doc:"The final state of the jobs"`
	Count       int64   `json:"count"`
	RunSeconds  float64 `json:"run_seconds" doc:"Total run time of the jobs"`
	ExecSeconds float64 `json:"exec_seconds" doc:"Total run time of commands and code cells, measured inside their sandboxes"`
}

// Usage tells what was used, up to this moment: it adds what the fold has not added yet, in one statement, so that
// nothing is counted twice or left out.
func (s *Store) Usage(ctx context.Context, q UsageQuery) ([]Usage, error) {
	after := slices.Clone(q.After)
	if len(after) != len(Usage{}.Key()) {
		after = nil
	}
	args := map[string]any{"tenant": q.Tenant, "from": q.From, "to": q.To, "limit": q.Limit}
	where, page := "hour >= @from AND hour < @to", ""
	if q.Tenant != "" {
		where += " AND tenant_id = @tenant"
	}
	if after != nil {
		page = "WHERE (start, tenant, usr, template, provider) > (@a0, @a1, @a2, @a3, @a4)"
		for i, v := range after {
			args[fmt.Sprintf("a%d", i)] = v
		}
	}
	var rows []Usage
	err := s.limited(ctx, usagePatience, func(tx *gorm.DB) error {
		return tx.Raw(`
		SELECT start, tenant, usr AS "user", template, provider,
			sum(running_ms) / 1000 AS running_seconds, sum(paused_ms) / 1000 AS paused_seconds,
			sum(cpu_ms) / 1000 AS cpu_seconds,
			sum(memory_mbms) / 1024000 AS memory_gib_seconds, sum(cpu_used_ms) / 1000 AS cpu_used_seconds,
			sum(memory_used_mbms) / 1024000 AS memory_used, max(memory_peak_mb) AS memory_peak_mb, sum(sent) AS sent,
			sum(received) AS received,
			coalesce(jsonb_agg(jsonb_build_object('kind', kind, 'outcome', outcome, 'count', jobs, 'run_seconds', run_ms / 1000,
				'exec_seconds', exec_ms / 1000) ORDER BY kind, outcome) FILTER (WHERE kind <> ''), '[]') AS jobs
		FROM (SELECT `+dimensions(q.By)+`, kind, outcome, sum(running_ms) AS running_ms, sum(paused_ms) AS paused_ms, sum(cpu_ms) AS cpu_ms,
				sum(memory_mbms) AS memory_mbms, sum(cpu_used_ms) AS cpu_used_ms, sum(memory_used_mbms) AS memory_used_mbms,
				max(memory_peak_mb) AS memory_peak_mb, sum(sent)::bigint AS sent, sum(received)::bigint AS received,
				sum(jobs)::bigint AS jobs,
				sum(run_ms) AS run_ms, sum(exec_ms) AS exec_ms
			FROM usage_parts WHERE `+where+` GROUP BY 1, 2, 3, 4, 5, 6, 7) parts
		`+page+` GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5 LIMIT @limit`, args).Scan(&rows).Error
	})
	return rows, err
}

// usagePatience is how long PostgreSQL may work on one question about usage.
const usagePatience = 10 * time.Second

// limited reads in a transaction whose statements PostgreSQL gives up after a time. Error: ErrTooMuch.
func (s *Store) limited(ctx context.Context, most time.Duration, read func(tx *gorm.DB) error) error {
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := tx.Exec(fmt.Sprintf("SET LOCAL statement_timeout = %d", most.Milliseconds())).Error; err != nil {
			return err
		}
		return read(tx)
	})
	const queryCanceled = "57014"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == queryCanceled && ctx.Err() == nil {
		return ErrTooMuch
	}
	return err
}

// dimensions are the five columns by which rows are grouped.
func dimensions(by []string) string {
	column := func(name, expression, alias string) string {
		if slices.Contains(by, name) {
			return expression + " AS " + alias
		}
		return "'' AS " + alias
	}
	const iso = `'YYYY-MM-DD"T"HH24:MI:SS"Z"'`
	start := column("hour", "to_char(hour AT TIME ZONE 'UTC', "+iso+")", "start")
	if slices.Contains(by, "day") && !slices.Contains(by, "hour") {
		start = column("day", "to_char(date_trunc('day', hour, 'UTC') AT TIME ZONE 'UTC', "+iso+")", "start")
	}
	return strings.Join([]string{
		start, column("tenant", "tenant_id", "tenant"), column("user", "user_id", "usr"),
		column("template", "template", "template"), column("provider", "provider", "provider"),
	}, ", ")
}
