package pg

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"gorm.io/gorm"
)

// Interceptor makes one call to the database by calling do, and may do something else instead of that, before or after
// it. What it returns is what the caller is told. Statement is the text of the call's SQL: of all its statements, with
// a semicolon between them.
type Interceptor func(ctx context.Context, statement string, do func() error) error

// chain makes one interceptor of several, the first of which is asked first.
func chain(all []Interceptor) Interceptor {
	return func(ctx context.Context, statement string, do func() error) error {
		for _, t := range slices.Backward(all) {
			inner := do
			do = func() error { return t(ctx, statement, inner) }
		}
		return do()
	}
}

// intercepted are the calls of a pool or a transaction.
type intercepted struct {
	gorm.ConnPool
	call Interceptor
}

// ExecContext implements gorm.ConnPool.
func (t intercepted) ExecContext(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = t.call(ctx, query, func() error {
		res, err = t.ConnPool.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

// QueryContext implements gorm.ConnPool. An answer that the interceptor takes away is read first, for with the last row
// the server has carried the statement out.
func (t intercepted) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	var rows *sql.Rows
	err := t.call(ctx, query, func() (err error) {
		rows, err = t.ConnPool.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // read below
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

// interceptedPool is the pool behind a DB.
type interceptedPool struct{ intercepted }

// ExecContext implements gorm.ConnPool.
func (p interceptedPool) ExecContext(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = replanned(func() error {
		res, err = p.intercepted.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

// QueryContext implements gorm.ConnPool.
func (p interceptedPool) QueryContext(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	err = replanned(func() error {
		rows, err = p.intercepted.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // the caller's
		return err
	})
	return rows, err
}
