// Package models is the truth: the tables in PostgreSQL, every query on them, and the legal changes of state.
//
// Each change of state is one conditional update that tells the caller whether it happened, and jobs are fenced by
// their attempt. A transaction that touches a sandbox and its jobs locks the sandbox row first. No other package
// sees GORM.
package models

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is a pool of connections to one Sandyard database. Its methods may be called concurrently.
type Store struct {
	db     *pg.DB
	submit *groupCommit
	admit  *admission
	users  *admission
	limits Limits
}

// Limits are the fleet-wide bounds that queries apply.
type Limits struct {
	// Window is how many jobs of one tenant may be in Redis, in each lane, before a worker has claimed them; the others
	// wait in PostgreSQL.
	Window int
}

// Open connects to the database at dsn (a PostgreSQL URL or key=value string) with at most conns connections. Each
// interceptor is asked to make every call.
func Open(ctx context.Context, dsn string, conns int, limits Limits, interceptors ...pg.Interceptor) (*Store, error) {
	db, err := pg.Open(ctx, dsn, conns, interceptors...)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, limits: limits}
	s.submit = newGroupCommit(conns/4, s.commitSubmissions)
	s.admit, s.users = newAdmission("", s.Waiting), newAdmission(userLimit, s.WaitingOf)
	return s, nil
}

// Close waits for the submissions under way and closes the connections.
func (s *Store) Close() error {
	s.submit.close()
	return s.db.Close()
}

// Ready says whether the database answers.
func (s *Store) Ready(ctx context.Context) error { return s.db.Ready(ctx) }

// Now is what time it is in the database. Moments that are written down, or meant for other processes, are told and
// compared by it alone: machines' clocks may differ by any amount.
func (s *Store) Now(ctx context.Context) time.Time { return s.db.Now(ctx) }

// Ahead is how much later it is in the database than here.
func (s *Store) Ahead(ctx context.Context) time.Duration { return s.db.Ahead(ctx) }

// Migrate brings the schema up to date. Several processes may call it at once; one does the work.
func (s *Store) Migrate(ctx context.Context, log *slog.Logger) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return s.db.Migrate(ctx, files, log)
}

// inTx is DB.Tx for what has an answer. With a transaction that is tried again the answer is made anew, too. What
// statements that are left to the end of the transaction read (pg.Into) comes too late for it.
func inTx[T any](ctx context.Context, db *pg.DB, f func(tx *gorm.DB) (T, error)) (answer T, err error) {
	err = db.Tx(ctx, func(tx *gorm.DB) (err error) {
		answer, err = f(tx)
		return err
	})
	return answer, err
}

// inSandbox is inTx under a lock of a sandbox. Error: ErrNotFound.
func inSandbox[T any](
	ctx context.Context,
	db *pg.DB,
	id string,
	lock func(*gorm.DB, string, *Sandbox) error,
	f func(tx *gorm.DB, box *Sandbox) (T, error),
) (T, error) {
	return inTx(ctx, db, func(tx *gorm.DB) (none T, _ error) {
		box, err := locked(tx, id, lock)
		if err != nil {
			return none, err
		}
		return f(tx, &box)
	})
}

// takeOne reads the first row of a query, or ErrNotFound.
func takeOne[T any](q *gorm.DB) (row T, err error) {
	err = q.Take(&row).Error
	return row, notFound(err)
}

// findAll reads the rows of a query; none with an error, since a list that was cut off in a row holds an empty one.
func findAll[T any](q *gorm.DB) ([]T, error) {
	var rows []T
	if err := q.Find(&rows).Error; err != nil {
		return nil, err
	}
	return rows, nil
}

// scanned reads what a query of no table selects: a value, a row or a list of them; nothing with an error.
func scanned[T any](q *gorm.DB) (T, error) {
	var value, none T
	if err := q.Scan(&value).Error; err != nil {
		return none, err
	}
	return value, nil
}

// countOf is how many rows a query has.
func countOf(q *gorm.DB) (int, error) {
	var n int64
	err := q.Count(&n).Error
	return int(n), err
}

// whereSet adds a condition on the value, unless that is the zero value of its type.
func whereSet[T comparable](q *gorm.DB, cond string, value T) *gorm.DB {
	if value == *new(T) {
		return q
	}
	return q.Where(cond, value)
}

func notFound(err error) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return ErrNotFound
	}
	return err
}

// affected is the error of a statement, or none where it has touched no row, such as ErrNotFound.
func affected(res *gorm.DB, none error) error {
	if res.Error == nil && res.RowsAffected == 0 {
		return none
	}
	return res.Error
}

type setting struct {
	Name  string `gorm:"primaryKey"`
	Value string
}

// SettingOrSet returns a shared value, storing the given one first if there is none.
func (s *Store) SettingOrSet(ctx context.Context, name, value string) (string, error) {
	db := s.db.WithContext(ctx)
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&setting{name, value}).Error; err != nil {
		return "", err
	}
	var found setting
	err := db.Where("name = ?", name).Take(&found).Error
	return found.Value, err
}

// SwapSetting replaces a shared value if it still is old, and says whether it was.
func (s *Store) SwapSetting(ctx context.Context, name, old, value string) (bool, error) {
	res := s.db.WithContext(ctx).Model(&setting{}).Where("name = ? AND value = ?", name, old).Update("value", value)
	return res.RowsAffected > 0, res.Error
}
