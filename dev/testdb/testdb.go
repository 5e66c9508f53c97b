// Package testdb gives tests databases that hold the product's tables and no rows.
package testdb

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

//nolint:gochecknoglobals // the databases of a process are used again by all of its tests
var schema = testenv.Schema{Prepare: migrate}

// New makes a migrated database for the test alone and returns its connection URL. Earlier tests may have used its
// files.
func New(t testing.TB) string {
	t.Helper()
	return schema.Database(t)
}

// Fresh is New of a database that nobody has written to, for a test that counts what is read of its files.
func Fresh(t testing.TB) string {
	t.Helper()
	dsn := testenv.Database(t)
	Migrate(t, dsn)
	return dsn
}

// Migrate makes the tables in an empty database.
func Migrate(t testing.TB, dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience())
	defer cancel()
	if err := migrate(ctx, dsn); err != nil {
		t.Fatalf("migrate the test's database: %v", err)
	}
}

func migrate(ctx context.Context, dsn string) error {
	s, err := models.Open(ctx, dsn, 1, models.Limits{})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx, slog.New(slog.DiscardHandler)), s.Close())
}
