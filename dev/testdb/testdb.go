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

// New makes a migrated database for the test alone and returns its connection URL.
func New(t testing.TB) string {
	t.Helper()
	return schema.Database(t)
}

func migrate(ctx context.Context, dsn string) error {
	s, err := models.Open(ctx, dsn, 1, models.Limits{})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx, slog.New(slog.DiscardHandler)), s.Close())
}
