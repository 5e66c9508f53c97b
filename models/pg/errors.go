package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrUncertain says that the database did not answer whether a change was made, and could not be asked afterwards.
var ErrUncertain = errors.New("it is unknown whether the change was made")

// Uncertain marks the error of a commit, or of a write without a transaction, that may have been made all the same.
// pgconn.SafeToRetry is not asked: it vouches for a simple query, such as COMMIT, whose connection broke after it was
// sent.
func Uncertain(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil, errors.Is(err, ErrUncertain), errors.Is(err, pgx.ErrTxCommitRollback), errors.As(err, &connect):
		return err
	case errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR": // worse ones end the session, with or without effect
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// IsRefused says whether err means that the database will never take these values.
func IsRefused(err error) bool {
	const dataException = "22"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, dataException)
}

// IsUnmigrated says whether err means that the database lacks tables or columns, because it was not migrated.
func IsUnmigrated(err error) bool {
	const undefinedTable, undefinedColumn = "42P01", "42703"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == undefinedColumn)
}

// IsUniqueViolation says whether err means that a row with these values exists already.
func IsUniqueViolation(err error) bool {
	const uniqueViolation = "23505"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation
}

// IsUnavailable says whether err means that the database could not be asked, not that it refused: the same call may
// succeed later.
func IsUnavailable(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || errors.Is(err, ErrUncertain) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", "53", "57": // connection, resources, operator intervention
			return true
		}
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) // the connection was lost a statement before
}

// IsLockedOut says whether err means that the database answers and knows no such user, password or database: waiting
// does not help.
func IsLockedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "28") || strings.HasPrefix(pg.Code, "3D"))
}
