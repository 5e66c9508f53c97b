package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// errLocked is what becomes of a submission that needs a row which somebody else has locked.
var errLocked = errors.New("the row is locked by another transaction")

// commitSubmissions commits a group of a line, or, when something in it breaks the transaction, each submission by
// itself. It returns those that met a locked row and were not committed.
func (s *Store) commitSubmissions(group []*submission, l line) (locked []*submission) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err := s.commitSurely(ctx, group, l)
	switch {
	case err == nil:
	case isLockTimeout(err), len(group) == 1, pg.IsUnavailable(err), errors.Is(err, pg.ErrUncertain):
		if isLockTimeout(err) {
			err = errLocked
		}
		for _, p := range group {
			p.err = err
		}
	default:
		for _, p := range group {
			if err := s.commitSurely(ctx, []*submission{p}, l); err != nil {
				p.err = err
			}
		}
	}
	for _, p := range group {
		switch {
		case !errors.Is(p.err, errLocked) && !isLockTimeout(p.err):
		case time.Since(p.came) < lockPatience:
			locked = append(locked, p)
		default:
			p.err = fmt.Errorf("%w: waited %v: %w", errLocked, lockPatience, context.DeadlineExceeded)
		}
	}
	return locked
}

func isLockTimeout(err error) bool {
	const lockNotAvailable = "55P03"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == lockNotAvailable
}

func (s *Store) commitGroup(ctx context.Context, group []*submission, l line) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		b := &batch{
			tx:      tx,
			group:   group,
			window:  s.limits.Window,
			patient: l.locked != "",
			tenants: map[string]*tenantState{},
			boxes:   map[string]*Sandbox{},
			active:  map[string]bool{},
			busy:    map[string]bool{},
			due:     map[dueKey]bool{},
		}
		for _, p := range group {
			p.out, p.replay, p.err = Submitted{}, nil, nil
		}
		for _, step := range []func() error{
			b.limitWaits, b.claimKeys, b.claimRuns, b.lockTenants, b.lockSandboxes, b.askRules, b.look, b.admitSandboxes,
			b.admitJobs, b.guard, b.applyEnds, b.place, b.insert, b.audit, b.releaseKeys, b.releaseRuns, b.settleEnds,
			b.dispatch,
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// batch is the one transaction of a group. Its first trip takes every lock and reads what the rest depends on, in one
// order for all groups: keys, runs, tenants, sandboxes. The last one writes.
type batch struct {
	tx      *gorm.DB
	group   []*submission
	window  int
	patient bool // wait a moment for locked rows; else pass over them
	now     time.Time
	owners  map[ownedKey]idempotencyKey
	tenants map[string]*tenantState // of new sandboxes
	users   map[string]*userState
	named   []Sandbox // live sandboxes with the keys of new ones
	creates []Job     // theirs

	labelled        []Sandbox // live sandboxes with the labels of new ones that may be reused
	labelledCreates []Job     // theirs

	boxes  map[string]*Sandbox // of the group, each locked
	found  []work
	active map[string]bool // sandboxes with a job that has not ended
	busy   map[string]bool // those with an ordered one
	due    map[dueKey]bool // those whose time is up, by the rules of the group
}

// open returns the submissions that are still to be carried out.
func (b *batch) open() []*submission {
	return slices.DeleteFunc(slices.Clone(b.group), func(p *submission) bool {
		return p.err != nil || p.replay != nil || p.out.Existing
	})
}

// limitWaits bounds every wait for a lock. The main line passes over rows that are locked, so that this is for what has
// no row yet, such as a key that another process is writing.
func (b *batch) limitWaits() error {
	wait := "SET LOCAL lock_timeout = '50ms'"
	if b.patient {
		wait = "SET LOCAL lock_timeout = '200ms'"
	}
	return pg.EnqueueRaw(b.tx, wait, nil, nil)
}

// locking is the clause that locks rows of the first trip. A reference to a row does not wait for it.
func (b *batch) locking() clause.Locking {
	l := clause.Locking{Strength: "NO KEY UPDATE"}
	if !b.patient {
		l.Options = "SKIP LOCKED"
	}
	return l
}

// look makes the first trip, and tells apart what was found.
func (b *batch) look() error {
	if err := pg.Flush(b.tx); err != nil {
		return err
	}
	b.settleKeys()
	for _, f := range b.found {
		b.active[f.ID], b.busy[f.ID], b.now = f.Active != nil, f.Ordered != nil, f.Now
	}
	for _, t := range b.tenants {
		b.now = t.Time
	}
	return nil
}

// dispatch hands what may run to Redis, each task by the caller that submitted it.
func (b *batch) dispatch() error {
	owner := map[string]*submission{}
	tenants := map[string]*submission{}
	for _, p := range b.group {
		if p.err == nil && p.replay == nil {
			tenants[p.TenantID] = p
		}
		for _, j := range p.out.Jobs {
			owner[j.ID] = p
		}
	}
	for tenant, fallback := range tenants {
		err := dispatchLater(b.tx, tenant, b.window, pg.Each(func(d Dispatch) {
			p := cmp.Or(owner[d.JobID], fallback)
			p.out.Dispatch = append(p.out.Dispatch, d)
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

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

// applyEnds carries out the End of each submission: no new work, queued jobs cancelled, running ones told to stop.
func (b *batch) applyEnds() error {
	for _, p := range b.open() {
		box := b.boxes[p.SandboxID]
		if p.End == nil || box.EndedAt != nil {
			continue
		}
		ended, err := endNow(b.tx, box, *p.End)
		if err != nil {
			return err
		}
		p.out.Ended = ended
	}
	return nil
}

func (b *batch) settleEnds() error {
	for _, p := range b.open() {
		if err := settle(b.tx, p.SandboxID, p.out.Ended); err != nil {
			return err
		}
	}
	return nil
}

// endNow turns a locked, live sandbox to deleting and returns the queued jobs it cancelled.
func endNow(tx *gorm.DB, box *Sandbox, why End) (ended []string, err error) {
	box.State, box.Desired = SandboxDeleting, DesiredDeleted
	if box.EndReason == nil {
		box.EndReason, box.EndActor = &why.Reason, &why.Actor
	}
	box.ChangedBy = why.Actor
	err = pg.Enqueue(
		pg.Build(tx).Model(box).Select("state", "desired", "end_reason", "end_actor", "changed_by").Updates(box),
		nil,
	)
	if err != nil {
		return nil, err
	}
	if err = stopJobs(tx, box, why.Actor, &ended); err == nil {
		err = pg.Flush(tx)
	}
	return ended, err
}

// stopJobs cancels the queued jobs of a locked sandbox, with the next flush, which adds their ids to ended, and asks
// for the end of those that run. Deletes go on. One statement does both: a worker claims a job without the sandbox's
// lock, and between two statements it would escape either.
func stopJobs(tx *gorm.DB, box *Sandbox, actor string, ended *[]string) error {
	return pg.Enqueue(pg.Build(tx).Raw(`UPDATE jobs SET
			cancel_requested_at = CASE state WHEN 'running' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
			finished_at = CASE state WHEN 'queued' THEN now() ELSE finished_at END,
			error = CASE state WHEN 'queued' THEN CAST(@gone AS jsonb) ELSE error END,
			state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
			cancelled_by = coalesce(cancelled_by, @actor)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND state IN ('queued', 'running') AND kind <> 'delete'
			ORDER BY id FOR UPDATE)
		RETURNING id, state`,
		map[string]any{"id": box.ID, "actor": actor, "gone": jsonText(sandboxGone(*box))}),
		pg.Each(func(j Job) {
			if j.State == Cancelled {
				*ended = append(*ended, j.ID)
			}
		}))
}

// inHalves does something with rows of which the database may refuse some. What fails together is done again by halves,
// until the rows are found that fail alone: each of them is put aside. So one row never keeps the others from being
// done.
func inHalves[T any](tx *gorm.DB, rows []T, do func([]T) error, aside func(T, error) error) error {
	if len(rows) == 0 {
		return nil
	}
	if err := tx.Exec("SAVEPOINT part").Error; err != nil {
		return err
	}
	cause := do(rows)
	if cause == nil {
		return tx.Exec("RELEASE SAVEPOINT part").Error
	}
	if !isPoison(cause) {
		return cause
	}
	if err := tx.Exec("ROLLBACK TO SAVEPOINT part").Error; err != nil {
		return errors.Join(cause, err)
	}
	if len(rows) == 1 {
		return aside(rows[0], cause)
	}
	half := len(rows) / 2
	if err := inHalves(tx, rows[:half], do, aside); err != nil {
		return err
	}
	return inHalves(tx, rows[half:], do, aside)
}

// isPoison says whether err is about the values of rows, so that the same rows will always fail: a value or a
// constraint, or a row that is too large.
func isPoison(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && len(pg.Code) == 5 && slices.Contains([]string{"22", "23", "54"}, pg.Code[:2])
}
