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
			tx: tx, group: group, window: s.limits.Window, patient: l.locked != "",
			tenants: map[string]*tenantState{}, boxes: map[string]*Sandbox{}, active: map[string]bool{}, busy: map[string]bool{},
			due: map[dueKey]bool{},
		}
		for _, p := range group {
			p.out, p.replay, p.err = Submitted{}, nil, nil
		}
		for _, step := range []func() error{
			b.limitWaits, b.claimKeys, b.claimRuns, b.lockTenants, b.lockSandboxes, b.askRules, b.look, b.admitSandboxes, b.admitJobs,
			b.guard,
			b.applyEnds, b.place, b.insert, b.audit, b.releaseKeys, b.releaseRuns, b.settleEnds, b.dispatch,
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
