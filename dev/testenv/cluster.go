package testenv

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sandyard/dev"
)

// cluster hands out databases. Making one costs a quarter of a second of CPU, emptying one a few milliseconds, so those
// that tests are done with are emptied and used again, under a new name: what still connects to the old one must fail.
type cluster struct {
	server *dev.Postgres
	free   names

	adminMu sync.Mutex
	admin   *pgx.Conn // for what is no statement within one of the databases
}

// take returns the name of an empty database that nobody else has.
func (c *cluster) take(ctx context.Context) (string, error) {
	if name, ok := c.free.take(); ok {
		return name, nil
	}
	name := newName()
	return name, c.run(ctx, "postgres", "create database "+name+" strategy file_copy")
}

// giveBack shuts everybody out of the database and empties it.
func (c *cluster) giveBack(ctx context.Context, name string) error {
	name, err := c.shut(ctx, name)
	if err != nil {
		return err
	}
	return c.empty(ctx, name)
}

// shut ends the connections to a database, undoes its settings and returns its new name, under which nobody has it yet.
func (c *cluster) shut(ctx context.Context, name string) (string, error) {
	next := newName()
	return next, c.manage(ctx,
		"alter database "+name+" with allow_connections false",
		"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+name+"'",
		"alter database "+name+" rename to "+next,
		"alter database "+next+" with allow_connections true",
		"alter database "+next+" reset all",
	)
}

func (c *cluster) empty(ctx context.Context, name string) error {
	if err := c.run(ctx, name, dropSchemas, "create schema public"); err != nil {
		return err
	}
	c.free.put(name)
	return nil
}

// names are those of databases that nobody has.
type names struct {
	mu   sync.Mutex
	list []string
}

func (n *names) take() (name string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) == 0 {
		return "", false
	}
	last := len(n.list) - 1
	name, n.list = n.list[last], n.list[:last]
	return name, true
}

func (n *names) put(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, name)
}

const dropSchemas = `do $$
declare s text;
begin
	for s in select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' loop
		execute format('drop schema %I cascade', s);
	end loop;
end $$`

// manage executes statements about databases, on a connection that is kept.
func (c *cluster) manage(ctx context.Context, statements ...string) error {
	c.adminMu.Lock()
	defer c.adminMu.Unlock()
	if c.admin == nil || c.admin.IsClosed() {
		conn, err := pgx.Connect(ctx, c.server.DatabaseDSN("postgres"))
		if err != nil {
			return fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		c.admin = conn
	}
	return execute(ctx, c.admin, statements)
}

func (c *cluster) run(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, c.server.DatabaseDSN(database))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", database, err)
	}
	defer conn.Close(ctx)
	return execute(ctx, conn, statements)
}

func execute(ctx context.Context, conn *pgx.Conn, statements []string) error {
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func newName() string {
	return "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
}
