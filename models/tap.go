package models

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"gorm.io/gorm"
)

// Tap makes one call to the database by calling do, and may do something else instead of that, before or after it. What
// it returns is what the caller is told. Statement is the text of the call's SQL: of all its statements, with a semicolon
// between them.
type Tap func(ctx context.Context, statement string, do func() error) error

// chain makes one tap of several, the first of which is asked first.
func chain(taps []Tap) Tap {
	return func(ctx context.Context, statement string, do func() error) error {
		for _, t := range slices.Backward(taps) {
			inner := do
			do = func() error { return t(ctx, statement, inner) }
		}
		return do()
	}
}

// tapping is GORM's plugin that puts a tap around the connections.
type tapping struct{ tap Tap }

// Name implements gorm.Plugin.
func (tapping) Name() string { return "sandyard:tap" }

// Initialize implements gorm.Plugin.
func (t tapping) Initialize(db *gorm.DB) error {
	pool, ok := db.ConnPool.(*sql.DB)
	if !ok {
		return errors.New("the database is already tapped")
	}
	db.ConnPool = tappedPool{tapped{pool, t.tap}, pool}
	db.Statement.ConnPool = db.ConnPool
	return nil
}

// tapped are the calls of a pool or a transaction.
type tapped struct {
	gorm.ConnPool
	tap Tap
}

// ExecContext implements gorm.ConnPool.
func (t tapped) ExecContext(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = t.tap(ctx, query, func() error {
		res, err = t.ConnPool.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

// QueryContext implements gorm.ConnPool. An answer that the tap takes away is read first, for with the last row the
// server has carried the statement out.
func (t tapped) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	var rows *sql.Rows
	err := t.tap(ctx, query, func() (err error) {
		rows, err = t.ConnPool.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // the caller's, or read to the end below
		return err
	})
	if err != nil && rows != nil {
		for rows.Next() {
			continue
		}
		return nil, errors.Join(err, rows.Err(), rows.Close())
	}
	return rows, err
}

// tappedPool is the pool behind a Store.
type tappedPool struct {
	tapped

	pool *sql.DB
}

// ExecContext implements gorm.ConnPool.
func (p tappedPool) ExecContext(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = replanned(func() error {
		res, err = p.tapped.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

// QueryContext implements gorm.ConnPool.
func (p tappedPool) QueryContext(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	err = replanned(func() error {
		rows, err = p.tapped.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // the caller's
		return err
	})
	return rows, err
}

// GetDBConn implements gorm.GetDBConnector.
func (p tappedPool) GetDBConn() (*sql.DB, error) { return p.pool, nil }
