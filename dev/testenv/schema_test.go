package testenv_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
)

// TestPreparedDatabasesAreUsedAgain: after a test that only wrote rows. Whatever it did, the next one finds no trace, and
// all are copies of what was prepared once.
func TestPreparedDatabasesAreUsedAgain(t *testing.T) {
	t.Parallel()
	var prepared atomic.Int32
	schema := testenv.Schema{Prepare: func(ctx context.Context, dsn string) error {
		prepared.Add(1)
		return execute(ctx, dsn, `create table versions (id int);
			insert into versions values (1);
			create table things (id int generated always as identity primary key, name text);
			create table parts (thing int references things)`)
	}}
	databases := map[uint32]bool{}
	const rows = "insert into things (name) values ('old'); insert into parts values (1); analyze things"
	for _, step := range []struct {
		does string
		made int // so many databases, before it
	}{
		{rows, 1},
		{"alter table parts rename to others", 1},
		{rows + "; create function public.more() returns int language sql as 'select 1'", 2},
		{"drop table parts", 3},
		{rows, 4},
		{"alter table things disable trigger all", 4},
		{rows, 5},
	} {
		t.Run(step.does, func(t *testing.T) {
			dsn := schema.Database(t)
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			var database uint32
			if err := conn.QueryRow(t.Context(), "select oid from pg_database where datname = current_database()").Scan(&database); err != nil {
				t.Fatal(err)
			}
			databases[database] = true
			if got := len(databases); got != step.made {
				t.Errorf("%d databases were made, expected %d", got, step.made)
			}
			var things, parts, versions, statistics, functions, next int
			err = conn.QueryRow(t.Context(), `select (select count(*) from things), (select count(*) from parts),
				(select count(*) from versions), (select count(*) from pg_stats where tablename = 'things'),
				(select count(*) from pg_proc where pronamespace = 'public'::regnamespace), nextval('things_id_seq')`).
				Scan(&things, &parts, &versions, &statistics, &functions, &next)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(things, parts, versions, statistics, functions, next); got != "0 0 1 0 0 1" {
				t.Errorf("found %s things, parts, versions, statistics, functions and next id", got)
			}
			if err := execute(t.Context(), dsn, "select setval('things_id_seq', 1, false); "+step.does); err != nil {
				t.Fatal(err)
			}
		})
	}
	if got := prepared.Load(); got != 1 {
		t.Errorf("%d databases were prepared, expected 1", got)
	}
}

func execute(ctx context.Context, dsn, statements string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statements)
	return err
}
