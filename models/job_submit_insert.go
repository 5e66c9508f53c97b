package models

import (
	"cmp"
	"slices"
	"time"

	"sandyard/models/pg"
)

// insert writes the jobs and moves the sandboxes' sequence on. A row that stands already is our own, from a commit
// whose answer was lost.
//
// It is one statement with the same text for any number of jobs: GORM would write another text, and PostgreSQL make
// another plan, for each size of a group. It sets what can be known of a job when it is submitted.
func (b *batch) insert() error {
	var jobs []Job
	var boxes []*Sandbox
	for _, p := range b.open() {
		jobs = append(jobs, p.out.Jobs...)
		boxes = append(boxes, b.boxes[p.SandboxID])
	}
	if len(jobs) == 0 {
		return nil
	}
	slices.SortFunc(boxes, func(x, y *Sandbox) int { return cmp.Compare(x.ID, y.ID) })
	args := append(sequences(slices.Compact(boxes)), columns(jobs)...)
	// Past GORM, which would spread the slices.
	return pg.EnqueueRaw(b.tx, `
		WITH moved AS (
			UPDATE sandboxes SET next_seq = v.seq, last_active_at = greatest(sandboxes.last_active_at, v.active)
			FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS v (id, seq, active) WHERE sandboxes.id = v.id)
		INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, parallel, priority, actor, args, input, timeout_ms,
			queue_deadline, callback_url, retry_of, max_attempts, ready_at, queued_at, started_at, finished_at, needs, bytes, call, joinable_at)
		SELECT * FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::boolean[], $11::int[],
			$12::text[], $13::jsonb[], $14::bytea[], $15::bigint[], $16::timestamptz[], $17::text[], $18::text[], $19::int[],
			$20::timestamptz[], $21::timestamptz[], $22::timestamptz[], $23::timestamptz[], $24::text[], $25::bigint[], $26::bytea[], $27::timestamptz[])
		ON CONFLICT DO NOTHING`, args, nil)
}

// sequences are insert's parameters from 1 to 3.
func sequences(boxes []*Sandbox) []any {
	return []any{
		column(boxes, func(x *Sandbox) string { return x.ID }),
		column(boxes, func(x *Sandbox) int64 { return x.NextSeq }),
		column(boxes, func(x *Sandbox) time.Time { return x.LastActiveAt }),
	}
}

// columns are insert's parameters from 4 on, in the order of its columns.
func columns(jobs []Job) []any {
	return []any{
		column(jobs, func(j Job) string { return j.ID }),
		column(jobs, func(j Job) string { return j.TenantID }),
		column(jobs, func(j Job) string { return j.SandboxID }),
		column(jobs, func(j Job) string { return j.Kind }),
		column(jobs, func(j Job) string { return string(j.State) }),
		column(jobs, func(j Job) int64 { return j.Seq }),
		column(jobs, func(j Job) bool { return j.Parallel }),
		column(jobs, func(j Job) int { return j.Priority }),
		column(jobs, func(j Job) string { return j.Actor }),
		column(jobs, func(j Job) string { return string(j.Args) }),
		column(jobs, func(j Job) []byte { return j.Input }),
		column(jobs, func(j Job) int64 { return j.TimeoutMS }),
		column(jobs, func(j Job) *time.Time { return j.QueueDeadline }),
		column(jobs, func(j Job) *string { return j.CallbackURL }),
		column(jobs, func(j Job) *string { return j.RetryOf }),
		column(jobs, func(j Job) int { return j.MaxAttempts }),
		column(jobs, func(j Job) *time.Time { return j.ReadyAt }),
		column(jobs, func(j Job) time.Time { return j.QueuedAt }),
		column(jobs, func(j Job) *time.Time { return j.StartedAt }),
		column(jobs, func(j Job) *time.Time { return j.FinishedAt }),
		column(jobs, func(j Job) *string { return j.Needs }),
		column(jobs, func(j Job) int64 { return int64(len(j.Args) + len(j.Input)) }),
		column(jobs, func(j Job) []byte { return j.Call }),
		column(jobs, func(j Job) *time.Time { return j.JoinableAt }),
	}
}

func column[R, V any](rows []R, of func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return values
}
