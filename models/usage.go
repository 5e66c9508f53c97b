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

// maxUsers is how many users of one tenant are counted apart on one day; the others are one, otherUser.
const (
	maxUsers  = 1000
	otherUser = "other"
)

// addUsage adds parts to the hours, whichever of them stand already. Hours are locked in one order, so that two folds
// cannot wait for each other.
const addUsage = `
	known AS (SELECT DISTINCT tenant_id, date_trunc('day', hour, 'UTC') AS day, user_id FROM parts),
	fresh AS (
		SELECT k.*, row_number() OVER (PARTITION BY tenant_id, day ORDER BY user_id)
			+ (SELECT count(*) FROM usage_users u WHERE u.tenant_id = k.tenant_id AND u.day = k.day) AS nth
		FROM known k WHERE NOT EXISTS (SELECT 1 FROM usage_users u WHERE u.tenant_id = k.tenant_id AND u.day = k.day AND u.user_id = k.user_id)),
	noted AS (INSERT INTO usage_users SELECT tenant_id, day, user_id FROM fresh WHERE nth <= @users ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING),
	counted AS (
		SELECT p.*, CASE WHEN f.nth > @users THEN @other ELSE p.user_id END AS whose FROM parts p LEFT JOIN fresh f
			ON f.tenant_id = p.tenant_id AND f.day = date_trunc('day', p.hour, 'UTC') AND f.user_id = p.user_id),
	added AS (
		INSERT INTO usage_hours AS u SELECT tenant_id, hour, whose, template, provider, kind, outcome, sum(running_ms),
		sum(paused_ms), sum(cpu_ms),
			sum(memory_mbms), sum(sent), sum(received), sum(jobs), sum(run_ms), sum(exec_ms), sum(cpu_used_ms), sum(memory_used_mbms), max(memory_peak_mb)
		FROM counted GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
		ON CONFLICT (tenant_id, hour, user_id, template, provider, kind, outcome) DO UPDATE SET
			running_ms = u.running_ms + excluded.running_ms, paused_ms = u.paused_ms + excluded.paused_ms,
			cpu_ms = u.cpu_ms + excluded.cpu_ms,
			memory_mbms = u.memory_mbms + excluded.memory_mbms, sent = u.sent + excluded.sent,
			received = u.received + excluded.received,
			jobs = u.jobs + excluded.jobs, run_ms = u.run_ms + excluded.run_ms, exec_ms = u.exec_ms + excluded.exec_ms,
			cpu_used_ms = u.cpu_used_ms + excluded.cpu_used_ms,
			memory_used_mbms = u.memory_used_mbms + excluded.memory_used_mbms,
			memory_peak_mb = greatest(u.memory_peak_mb, excluded.memory_peak_mb))`

// foldFacts takes the facts named by @picked, a list of places in the table.
const foldFacts = `
	WITH facts AS (DELETE FROM usage_facts WHERE ctid = ANY (CAST(CAST(@picked AS text[]) AS tid[])) RETURNING *),
		parts AS (SELECT p.* FROM facts, usage_of_fact(ROW (facts.*)::usage_facts) p), ` + addUsage + `
	SELECT count(*) FROM facts`

const pickFacts = `SELECT ctid::text FROM usage_facts LIMIT @limit FOR UPDATE SKIP LOCKED`

// foldSpans takes the time of the spans named by @picked as far as it is over. A transaction that ends a span may have
// begun in the hour before: the last hour is over when none can have.
const foldSpans = `
	WITH ` + spanEdge + `,
		picked AS (SELECT s AS span, s.id, s.ended_at, coalesce(s.ended_at, edge.hour) AS until FROM usage_spans s, edge
			WHERE s.id = ANY (CAST(CAST(@picked AS text[]) AS bigint[]))),
		gone AS (DELETE FROM usage_spans s USING picked WHERE s.id = picked.id AND picked.ended_at IS NOT NULL),
		moved AS (UPDATE usage_spans s SET started_at = picked.until FROM picked WHERE s.id = picked.id AND picked.ended_at IS NULL),
		parts AS (SELECT p.* FROM picked, usage_of_span(picked.span, picked.until) p), ` + addUsage + `
	SELECT count(*) FROM picked`

const pickSpans = `WITH ` + spanEdge + ` SELECT s.id::text FROM usage_spans s, edge
	WHERE s.ended_at IS NOT NULL OR s.started_at < edge.hour ORDER BY s.id LIMIT @limit FOR UPDATE OF s SKIP LOCKED`

const spanEdge = `edge AS (SELECT date_trunc('hour', now() - interval '5 minutes', 'UTC') AS hour)`

// Statements that put aside what cannot be added.
const (
	refuseFact = `WITH gone AS (DELETE FROM usage_facts WHERE ctid = ANY (CAST(CAST(@picked AS text[]) AS tid[])) RETURNING *)
		INSERT INTO usage_refused (data, error) SELECT to_jsonb(gone), @error FROM gone`
	refuseSpan = `WITH gone AS (DELETE FROM usage_spans WHERE id = ANY (CAST(CAST(@picked AS text[]) AS bigint[])) RETURNING *)
		INSERT INTO usage_refused (data, error) SELECT to_jsonb(gone), @error FROM gone`
)

// FoldFacts adds what jobs and connections have used to the hours, and forgets it where it was. It says whether there
// may be more. Its error is a *RefusedUsage where a row could not be added; all others were.
func (s *Store) FoldFacts(ctx context.Context, limit int) (more bool, err error) {
	return s.fold(ctx, limit, pickFacts, foldFacts, refuseFact)
}

// FoldSpans adds the time of sandboxes to the hours: of spans that have ended, which it forgets, and of those that last
// the hours that are over. More and the error are those of FoldFacts.
func (s *Store) FoldSpans(ctx context.Context, limit int) (more bool, err error) {
	return s.fold(ctx, limit, pickSpans, foldSpans, refuseSpan)
}

// RefusedUsage says that usage was put aside, because the database will not add it.
type RefusedUsage struct {
	Rows  int
	Cause error // of the last one
}

func (e *RefusedUsage) Error() string { return "usage was set aside: " + e.Cause.Error() }

// fold adds at most limit rows, and puts aside those that the database refuses.
func (s *Store) fold(ctx context.Context, limit int, pick, add, refuse string) (more bool, err error) {
	var n int
	var refused RefusedUsage
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		var picked []string
		refused = RefusedUsage{}
		if err := tx.Raw(pick, map[string]any{"limit": limit}).Scan(&picked).Error; err != nil {
			return err
		}
		n = len(picked)
		args := func(ids []string) map[string]any {
			return map[string]any{"picked": idArray(ids), "users": maxUsers, "other": otherUser}
		}
		return inHalves(tx, picked,
			func(ids []string) error { return tx.Exec(add, args(ids)).Error },
			func(id string, cause error) error {
				refused.Rows, refused.Cause = refused.Rows+1, cause
				with := args([]string{id})
				with["error"] = cause.Error()
				return tx.Exec(refuse, with).Error
			})
	})
	if err == nil && refused.Rows > 0 {
		err = &refused
	}
	return n == limit, err
}

// PruneUsageUsers forgets which users were counted apart on days longer than age ago, and says how many.
func (s *Store) PruneUsageUsers(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "usage_users", "day", age, limit)
}

// Meter is what a sandbox has used since it was made.
type Meter struct {
	SandboxID string
	CPUMS     float64 // milliseconds of processor time
	MemoryMB  float64 // now
	PeakMB    float64

	Sampled bool  // a sample is kept of it
	Memory  int64 // the sample's, like what follows; bytes
	Cache   int64
	Files   int64
}

// Sample is what a sandbox used at one moment.
type Sample struct {
	At         time.Time
	CPUPercent float64 // of the sandbox's share, since the reading before
	Memory     int64   // bytes, like what follows; without what the kernel can take back
	Cache      int64   // what it can
	Files      int64   // that the sandbox has written
}

// Metered returns the sandboxes whose use a node can measure, with no more than their ids, states and their provider's
// ids.
func (s *Store) Metered(ctx context.Context, node string) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Select("id", "state", "provider_ref").
		Where("node_id = ? AND ended_at IS NULL AND state IN ('running', 'paused')", node).Order("id"))
}

// AddMeters writes readings down, and samples of those that say so, all in one statement. What has come to them since
// the last ones is counted in the hour of now. A reading that is older than the last one changes nothing, and sandboxes
// that are not there any more are left out.
//
// Rows are looked up one by one, so that no plan reads a whole table for the sake of a few of them.
func (s *Store) AddMeters(ctx context.Context, readings []Meter) error {
	if len(readings) == 0 {
		return nil
	}
	return s.db.WithContext(ctx).Exec(`
		WITH r AS MATERIALIZED (SELECT * FROM jsonb_to_recordset(?::jsonb) AS r("SandboxID" text, "CPUMS" float8, "MemoryMB" float8, "PeakMB" float8,
			"Sampled" boolean, "Memory" bigint, "Cache" bigint, "Files" bigint)),
		metered AS (
			INSERT INTO usage_meters AS m (sandbox_id, cpu_ms, memory_mb, memory_peak_mb)
			SELECT "SandboxID", "CPUMS", "MemoryMB", "PeakMB" FROM r WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = r."SandboxID") ORDER BY 1
			ON CONFLICT (sandbox_id) DO UPDATE SET cpu_ms = excluded.cpu_ms, memory_mb = excluded.memory_mb,
				memory_peak_mb = greatest(m.memory_peak_mb, excluded.memory_peak_mb), measured_at = excluded.measured_at
			WHERE excluded.cpu_ms >= m.cpu_ms AND excluded.measured_at > m.measured_at
			RETURNING sandbox_id, cpu_ms, measured_at)
		INSERT INTO usage_samples (sandbox_id, at, cpu_percent, memory, cache, files)
		SELECT m.sandbox_id, m.measured_at, least(100, greatest(0, coalesce((m.cpu_ms - coalesce(last.cpu_ms, 0)) / 10
				/ nullif(extract(epoch FROM m.measured_at - coalesce(last.measured_at, s.started_at))::float8 * s.share, 0), 0))),
			r."Memory", r."Cache", r."Files"
		FROM metered m JOIN r ON r."SandboxID" = m.sandbox_id AND r."Sampled",
			LATERAL (SELECT started_at, coalesce(nullif(cpus, 0), 1) AS share FROM sandboxes WHERE id = m.sandbox_id LIMIT 1) s
			LEFT JOIN LATERAL (SELECT cpu_ms, measured_at FROM usage_meters WHERE sandbox_id = m.sandbox_id LIMIT 1) last ON true -- as it was before`,
		string(must(json.Marshal(readings)))).Error
}

// Samples returns those of a sandbox between two moments, the oldest first.
func (s *Store) Samples(ctx context.Context, sandboxID string, from, to time.Time) ([]Sample, error) {
	return findAll[Sample](s.db.WithContext(ctx).
		Table("usage_samples").
		Where("sandbox_id = ? AND at BETWEEN ? AND ?", sandboxID, from, to).
		Order("at"))
}

// PruneSamples forgets samples older than age, and says how many.
func (s *Store) PruneSamples(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "usage_samples", "at", age, limit)
}
