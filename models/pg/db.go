// Package pg is the connection to PostgreSQL: transactions that send several statements in one trip, interceptors of
// calls, the database's clock, and what its errors mean. It knows no table.
package pg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"gorm.io/gorm"
)

// DB is a pool of connections to one database. Its methods may be called concurrently.
type DB struct {
	gorm  *gorm.DB
	pool  *sql.DB
	plain *pgx.ConnConfig // of connections without a limit to their patience
	call  Interceptor
	clock clock
}

// idleConnection is how long a connection that nobody needs is kept: others share the server's.
const idleConnection = time.Minute

// Open connects to the database at dsn (a PostgreSQL URL or key=value string) with at most conns connections. Each
// interceptor is asked to make every call.
func Open(ctx context.Context, dsn string, conns int, interceptors ...Interceptor) (*DB, error) {
	plain, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	call := chain(interceptors)
	db, pool, err := connect(plain, call)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(idleConnection)
	d := &DB{gorm: db, pool: pool, plain: plain, call: call}
	if err := d.Ready(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Now(ctx)
	return d, nil
}

// WithContext is GORM outside of a transaction.
func (d *DB) WithContext(ctx context.Context) *gorm.DB { return d.gorm.WithContext(ctx) }

// Close closes the connections.
func (d *DB) Close() error { return d.pool.Close() }

// Ready says whether the database answers.
func (d *DB) Ready(ctx context.Context) error {
	if err := d.pool.PingContext(ctx); err != nil {
		return fmt.Errorf("PostgreSQL does not answer: %w", err)
	}
	return nil
}

// Migrate applies the migrations among files that are missing. Several processes may call it at once; one does the
// work. It has connections of its own, for it may take long, and wait for the others.
func (d *DB) Migrate(ctx context.Context, files fs.FS, log *slog.Logger) error {
	pool := stdlib.OpenDB(*d.plain)
	return errors.Join(migrate(ctx, pool, files, log), pool.Close())
}

func migrate(ctx context.Context, pool *sql.DB, files fs.FS, log *slog.Logger) error {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("prepare migration lock: %w", err)
	}
	p, err := goose.NewProvider(
		goose.DialectPostgres,
		pool,
		files,
		goose.WithSessionLocker(locker),
		goose.WithAllowOutofOrder(true),
	)
	if err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	done, err := p.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, m := range done {
		log.InfoContext(ctx, "migration applied", "file", m.Source.Path, "took", m.Duration)
	}
	return nil
}

// Tx runs f in a transaction, again when PostgreSQL chose it as the victim of a deadlock or a migration has come
// between. ErrUncertain: the commit was not answered. A try that takes too long is given up: the server may have
// stopped answering.
func (d *DB) Tx(ctx context.Context, f func(tx *gorm.DB) error) error {
	return replanned(func() error {
		for try := 0; ; try++ {
			err := d.tryTx(ctx, f)
			if try == 3 || !isDeadlock(err) {
				return err
			}
		}
	})
}

// replanned does a thing again that met a statement prepared before a migration: PostgreSQL refuses it, and pgx
// prepares it anew the next time. Every connection may hold such a one.
func replanned(do func() error) error {
	const mostConnections = 100
	for try := 0; ; try++ {
		err := do()
		if try == mostConnections || !isStalePlan(err) {
			return err
		}
	}
}

func isStalePlan(err error) bool {
	const featureNotSupported = "0A000"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == featureNotSupported &&
		pg.Routine == "RevalidateCachedQuery" // the message has languages
}

// txTimeout bounds one transaction.
const txTimeout = 15 * time.Second

func (d *DB) tryTx(ctx context.Context, f func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	t := newTransaction(conn, d.call)
	defer t.rollback(ctx)
	tx := d.gorm.Session(&gorm.Session{NewDB: true, Context: ctx})
	tx.Statement.ConnPool = t
	if err := f(tx); err != nil {
		return err
	}
	return Uncertain(t.commit(ctx))
}

func isDeadlock(err error) bool {
	const deadlockDetected, serializationFailure = "40P01", "40001"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == deadlockDetected || pg.Code == serializationFailure)
}
