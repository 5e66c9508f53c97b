package models

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

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
