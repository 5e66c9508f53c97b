package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

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
