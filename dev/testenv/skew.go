package testenv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Skewed is a Database whose now() is ahead of this machine's clock, or behind it.
func Skewed(t testing.TB, by time.Duration) string {
	t.Helper()
	dsn := Database(t)
	ctx, cancel := context.WithTimeout(context.Background(), Patience())
	defer cancel()
	if err := skew(ctx, dsn, by); err != nil {
		t.Fatalf("set the clock of the test's database: %v", err)
	}
	return dsn
}

// skew puts another now() before PostgreSQL's own, for all who connect from now on.
func skew(ctx context.Context, dsn string, by time.Duration) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		"CREATE SCHEMA skew",
		fmt.Sprintf("CREATE FUNCTION skew.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() + interval '%d seconds' $$", int(by.Seconds())),
		"ALTER DATABASE " + conn.Config().Database + " SET search_path = public, skew, pg_catalog",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
