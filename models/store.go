// Package models is the truth: the tables in PostgreSQL, every query on them, and the legal changes of state.
//
// Each change of state is one conditional update that tells the caller whether it happened, and jobs are fenced by
// their attempt. A transaction that touches a sandbox and its jobs locks the sandbox row first. No other package
// sees GORM.
package models

import (
	"context"
	"database/sql"
	"embed"
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

//go:embed migrations/*.sql
var migrations embed.FS

// Store is a pool of connections to one Sandyard database. Its methods may be called concurrently.
type Store struct {
	db     *gorm.DB
	pool   *sql.DB
	plain  *pgx.ConnConfig // of connections without a limit to their patience
	tap    Tap
	submit *groupCommit
	admit  *admission
	users  *admission
	limits Limits
	clock  clock
}

// Limits are the fleet-wide bounds that queries apply.
type Limits struct {
	// Window is how many jobs of one tenant may be in Redis, in each lane, before a worker has claimed them; the others wait
	// in PostgreSQL.
	Window int
}

// idleConnection is how long a connection that nobody needs is kept: others share the server's.
const idleConnection = time.Minute

// Open connects to the database at dsn (a PostgreSQL URL or key=value string) with at most conns connections. Each tap is
// asked to make every call.
func Open(ctx context.Context, dsn string, conns int, limits Limits, taps ...Tap) (*Store, error) {
	plain, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	db, err := connect(plain)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(idleConnection)
	tap := chain(taps)
	if err := db.Use(tapping{tap}); err != nil {
		return nil, fmt.Errorf("tap the database: %w", err)
	}
	s := &Store{db: db, pool: pool, plain: plain, tap: tap, limits: limits}
	s.submit = newGroupCommit(conns/4, s.commitSubmissions)
	s.admit, s.users = newAdmission("", s.Waiting), newAdmission(userLimit, s.WaitingOf)
	if err := s.Ready(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Now(ctx)
	return s, nil
}

// endIdleTransactions makes the server end a transaction whose process was stopped or cut off in the middle, for others
// wait for its locks. Ours never rest between two statements.
func endIdleTransactions(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '15s'")
	return err
}

// Close waits for the submissions under way and closes the connections.
func (s *Store) Close() error {
	s.submit.close()
	return s.pool.Close()
}

// Ready says whether the database answers.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.pool.PingContext(ctx); err != nil {
		return fmt.Errorf("PostgreSQL does not answer: %w", err)
	}
	return nil
}

// Migrate brings the schema up to date. Several processes may call it at once; one does the work. It has connections of
// its own, for it may take long, and wait for the others.
func (s *Store) Migrate(ctx context.Context, log *slog.Logger) error {
	pool := stdlib.OpenDB(*s.plain)
	err := migrate(ctx, pool, log)
	return errors.Join(err, pool.Close())
}

func migrate(ctx context.Context, pool *sql.DB, log *slog.Logger) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("prepare migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, pool, files, goose.WithSessionLocker(locker), goose.WithAllowOutofOrder(true))
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

// tx runs f in a transaction, again when PostgreSQL chose it as the victim of a deadlock or a migration has come between.
// ErrUncertain: the commit was not answered. A try that takes too long is given up: the server may have stopped answering.
func (s *Store) tx(ctx context.Context, f func(tx *gorm.DB) error) error {
	return replanned(func() error {
		for try := 0; ; try++ {
			err := s.tryTx(ctx, f)
			if try == 3 || !isDeadlock(err) {
				return err
			}
		}
	})
}

// replanned does a thing again that met a statement prepared before a migration: PostgreSQL refuses it, and pgx prepares it
// anew the next time. Every connection may hold such a one.
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
	return errors.As(err, &pg) && pg.Code == featureNotSupported && pg.Routine == "RevalidateCachedQuery" // the message has languages
}

// txTimeout bounds one transaction.
const txTimeout = 15 * time.Second

func (s *Store) tryTx(ctx context.Context, f func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	conn, err := s.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	t := newTransaction(conn, s.tap)
	defer t.rollback(ctx)
	tx := s.db.Session(&gorm.Session{NewDB: true, Context: ctx})
	tx.Statement.ConnPool = t
	if err := f(tx); err != nil {
		return err
	}
	return uncertain(t.commit(ctx))
}

func isDeadlock(err error) bool {
	const deadlockDetected, serializationFailure = "40P01", "40001"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == deadlockDetected || pg.Code == serializationFailure)
}
