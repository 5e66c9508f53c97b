package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"
)

// rollbackTimeout bounds the end of a transaction that has failed; a connection that takes longer is given up.
const rollbackTimeout = 5 * time.Second

// transaction is GORM's connection while a transaction lasts. Statements may be left to it (see Enqueue): they go to
// the server together, in one trip, before the next statement that GORM executes itself, or else with the commit. BEGIN
// is the first of them.
type transaction struct {
	intercepted

	conn  *sql.Conn
	batch *pgx.Batch
	text  []string // of the statements in batch
	begun bool
	over  bool
}

func newTransaction(conn *sql.Conn, call Interceptor) *transaction {
	t := &transaction{intercepted: intercepted{conn, call}, conn: conn, batch: &pgx.Batch{}}
	t.add("BEGIN", nil, nil)
	return t
}

func (t *transaction) add(query string, args []any, read Reader) {
	q := t.batch.Queue(query, args...)
	if read != nil {
		q.Fn = read
	}
	t.text = append(t.text, query)
}

// flush sends what waits. An error of any statement leaves nothing to do but a rollback.
func (t *transaction) flush(ctx context.Context) error {
	if len(t.text) == 0 {
		return nil
	}
	batch, text := t.batch, strings.Join(t.text, "; ")
	t.batch, t.text, t.begun = &pgx.Batch{}, nil, true
	return t.call(ctx, text, func() error {
		return t.raw(func(c *pgx.Conn) error { return c.SendBatch(ctx, batch).Close() })
	})
}

func (t *transaction) raw(f func(*pgx.Conn) error) error {
	return t.conn.Raw(func(c any) error {
		own, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the database's driver is %T, not pgx", c)
		}
		return f(own.Conn())
	})
}

// ExecContext implements gorm.ConnPool.
func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.intercepted.ExecContext(ctx, query, args...)
}

// QueryContext implements gorm.ConnPool.
func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.intercepted.QueryContext(ctx, query, args...)
}

// commit sends what waits and COMMIT after it. The error of a statement is the server's, and then nothing was
// committed.
func (t *transaction) commit(ctx context.Context) error {
	if !t.begun && len(t.text) == 1 {
		return nil // nothing was asked
	}
	t.add("COMMIT", nil, func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
	err := t.flush(ctx)
	t.over = err == nil
	return err
}

// rollback ends a transaction that was not committed.
func (t *transaction) rollback(ctx context.Context) {
	if t.over || !t.begun {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.raw(func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			return driver.ErrBadConn // takes it out of the pool, and ends the transaction with it
		}
		return nil
	})
}

// Build makes GORM build statements in place of executing them, for Enqueue.
func Build(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{DryRun: true}) }

// Enqueue leaves a statement, made by Build, to its transaction. Read may be nil.
func Enqueue(stmt *gorm.DB, read Reader) error {
	if stmt.Error != nil {
		return stmt.Error
	}
	return EnqueueRaw(stmt, stmt.Statement.SQL.String(), stmt.Statement.Vars, read)
}

// EnqueueRaw is Enqueue for a statement that GORM could not write.
func EnqueueRaw(tx *gorm.DB, query string, args []any, read Reader) error {
	t, ok := tx.Statement.ConnPool.(*transaction)
	if !ok {
		return errors.New("there is no transaction to leave a statement to")
	}
	t.add(query, args, read)
	return nil
}

// Flush sends what was left to the transaction; then it has been read.
func Flush(tx *gorm.DB) error {
	t, ok := tx.Statement.ConnPool.(*transaction)
	if !ok {
		return errors.New("there is no transaction to flush")
	}
	return t.flush(tx.Statement.Context)
}
