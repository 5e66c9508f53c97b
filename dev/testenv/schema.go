package testenv

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Schema hands out databases as Prepare makes them. It is called once; the others are copies of what it made. A copy
// costs far more than emptying, so a database that a test is done with loses its rows, settings and statistics and is
// handed out again. One whose schema the test changed, or that has grown, is not.
type Schema struct {
	// Prepare makes the tables in the empty database at this connection URL. The rows that it writes into a table must
	// be none that a test changes: they stay.
	Prepare func(ctx context.Context, dsn string) error

	free names

	making   sync.Mutex
	template string // the database that Prepare made; nobody connects to it
}

// Database makes a database for the test alone and returns its connection URL, like the function of that name.
func (s *Schema) Database(t testing.TB) string {
	t.Helper()
	if isBenchmark(t) {
		ctx, cancel := context.WithTimeout(context.Background(), Patience())
		defer cancel()
		dsn := Database(t)
		if err := s.Prepare(ctx, dsn); err != nil {
			t.Fatalf("prepare the benchmark's database: %v", err)
		}
		return dsn
	}
	c := started(t, shared)
	return lend(t, c,
		func(ctx context.Context) (string, error) { return s.take(ctx, c) },
		func(ctx context.Context, name string) error { return s.giveBack(ctx, c, name) },
	)
}

func (s *Schema) take(ctx context.Context, c *cluster) (string, error) {
	if name, ok := s.free.take(); ok {
		return name, nil
	}
	template, err := s.prepared(ctx, c)
	if err != nil {
		return "", err
	}
	name := newName()
	return name, c.run(ctx, "postgres", "create database "+name+" template "+template+" strategy file_copy")
}

// prepared makes the template unless it is there.
func (s *Schema) prepared(ctx context.Context, c *cluster) (string, error) {
	s.making.Lock()
	defer s.making.Unlock()
	if s.template != "" {
		return s.template, nil
	}
	name, err := c.take(ctx)
	if err != nil {
		return "", err
	}
	if err := s.Prepare(ctx, c.server.DatabaseDSN(name)); err != nil {
		return "", err
	}
	if err := c.run(ctx, name, watchSchema); err != nil {
		return "", err
	}
	s.template = name
	return name, nil
}

func (s *Schema) giveBack(ctx context.Context, c *cluster, name string) error {
	name, err := c.shut(ctx, name)
	if err != nil {
		return err
	}
	again, err := c.deleteRows(ctx, name)
	if err != nil {
		return err
	}
	if !again {
		return c.empty(ctx, name)
	}
	s.free.put(name)
	return nil
}

// watchSchema has the database count the statements that change its schema, from then on.
const watchSchema = `
create schema testenv;
create table testenv.changes (command text);
create table testenv.kept as select oid from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0;
create function testenv.note() returns event_trigger language plpgsql as $$
begin
	insert into testenv.changes values (tg_tag);
end $$;
create event trigger testenv on ddl_command_end execute function testenv.note()`

// deleteRows empties the tables and answers true if their schema is as Prepare made it and they, with the rows that were
// in them before, are small.
func (c *cluster) deleteRows(ctx context.Context, database string) (again bool, err error) {
	conn, err := pgx.Connect(ctx, c.server.DatabaseDSN(database))
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `select not exists (select from testenv.changes) and sum(pg_relation_size(oid)) < 1 << 20
		from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'`).Scan(&again)
	if err == nil && again {
		_, err = conn.Exec(ctx, deleteRows)
	}
	return again, err
}

// deleteRows leaves alone what Prepare wrote, such as the migrations' own list. It runs no trigger, so none forbids it, and
// tables need no order. Truncating them takes longer: it makes the files of each table and index anew.
const deleteRows = `do $$
declare filled regclass;
begin
	set local session_replication_role = replica;
	for filled in select oid from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'
		and pg_relation_size(oid) > 0 and oid not in (select oid from testenv.kept) loop
		execute 'delete from ' || filled;
	end loop;
	perform setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) from pg_sequences where last_value is not null;
	delete from pg_statistic where starelid in (select oid from pg_class where relnamespace = 'public'::regnamespace);
end $$`
