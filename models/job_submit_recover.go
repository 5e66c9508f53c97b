package models

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

const (
	// doubtTimeout bounds the search for what became of a commit that was not answered.
	doubtTimeout = 5 * time.Second
	// submitRetry is how long to wait before a submission that the database did not take is tried again; it doubles.
	submitRetry   = 50 * time.Millisecond
	submitRetries = 4
)

// commitSurely commits a group, again where the database was away for a moment, and finds out what became of a commit
// that was not answered. After any error but pg.ErrUncertain nothing was accepted.
func (s *Store) commitSurely(ctx context.Context, group []*submission, l line) error {
	wait := submitRetry
	for try := 0; ; try++ {
		err := s.commitGroup(ctx, group, l)
		if errors.Is(err, pg.ErrUncertain) {
			err = s.clearUp(ctx, group, err)
		}
		if err == nil || !pg.IsUnavailable(err) || errors.Is(err, pg.ErrUncertain) || try == submitRetries {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		wait *= 2
	}
}

// clearUp asks on other connections whether the group was committed, until somebody knows. The group shares one
// transaction, so one of its jobs speaks for all.
func (s *Store) clearUp(ctx context.Context, group []*submission, doubt error) error {
	i := slices.IndexFunc(
		group,
		func(p *submission) bool { return len(p.out.Jobs) > 0 && p.err == nil && !p.out.Existing },
	)
	if i < 0 {
		return nil // nothing was to be written
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doubtTimeout)
	defer cancel()
	for {
		made, err := s.wasMade(ctx, group[i])
		switch {
		case err == nil && made:
			return s.recall(ctx, group)
		case err == nil:
			return fmt.Errorf("%w: not committed: %s", driver.ErrBadConn, doubt.Error())
		}
		select {
		case <-time.After(2 * submitRetry):
		case <-ctx.Done():
			return doubt
		}
	}
}

// recall reads what the answer to the commit would have said: which of the group's jobs were handed to Redis.
func (s *Store) recall(ctx context.Context, group []*submission) error {
	for _, p := range group {
		p.out.Dispatch = nil
		err := s.db.WithContext(ctx).
			Model(&Job{}).
			Where("id IN ? AND state = 'queued' AND dispatched_at IS NOT NULL", jobIDs(p.out.Jobs)).
			Select("id", "kind", "generation", "queue", "timeout_ms").
			Scan(&p.out.Dispatch).
			Error
		if err != nil {
			return nil //nolint:nilerr // it was made; the sweep hands over what nobody claims
		}
	}
	return nil
}

// wasMade says whether a submission stands in the tables. It takes the lock that the submission had taken, and so waits
// for the end of a transaction whose connection has broken and which the server does not know of yet.
func (s *Store) wasMade(ctx context.Context, p *submission) (made bool, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		lock := tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Select("id")
		if p.New != nil {
			lock = lock.Where("id = ?", p.TenantID).Limit(1).Find(&Tenant{})
		} else {
			lock = lock.Where("id = ?", p.SandboxID).Limit(1).Find(&Sandbox{})
		}
		if lock.Error != nil {
			return lock.Error
		}
		var n int64
		err := tx.Model(&Job{}).Where("id = ?", p.answer()).Count(&n).Error
		made = n > 0
		return err
	})
	return made, err
}
