package testenv_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sandyard/dev/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDatabasesAreEmptyAndApart(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if i < 6 {
				t.Parallel() // the others come first, one after the other, and use the same database again
			}
			conn, err := pgx.Connect(context.Background(), testenv.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			for _, statement := range []string{"create table things (id int)", "create schema other create table things (id int)"} {
				if _, err := conn.Exec(context.Background(), statement); err != nil {
					t.Fatalf("database is not empty: %v", err)
				}
			}
		})
	}
}

func TestDatabaseIsDroppedUnderOpenConnections(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = testenv.Database(t)
		if _, err := pgx.Connect(context.Background(), dsn); err != nil {
			t.Fatal(err)
		}
	})
	if conn, err := pgx.Connect(context.Background(), dsn); err == nil {
		conn.Close(context.Background())
		t.Fatal("the database outlived its test")
	}
}

func TestRedisIsPrivate(t *testing.T) {
	t.Parallel()
	first, second := client(t), client(t)
	ctx := context.Background()
	if err := first.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := second.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := first.Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Fatalf("got %q, %v after another test's FLUSHALL", got, err)
	}
}

func client(t testing.TB) *redis.Client {
	t.Helper()
	network, addr, db := testenv.Redis(t)
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr, DB: db})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestBenchmarksWriteToDisk asks the servers themselves: figures from servers that sync nothing would be lies.
func TestBenchmarksWriteToDisk(t *testing.T) {
	settings := func(t testing.TB) string {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, testenv.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		var fsync, commit string
		err = conn.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
		if err != nil {
			t.Fatal(err)
		}
		aof, err := client(t).ConfigGet(ctx, "appendonly").Result()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(fsync, " ", commit, " ", aof["appendonly"])
	}
	if got := settings(t); got != "off off no" {
		t.Errorf("a test has %s", got)
	}
	var got string
	testing.Benchmark(func(b *testing.B) {
		if b.N == 1 {
			got = settings(b)
		}
	})
	if got != "on on yes" {
		t.Errorf("a benchmark has %s", got)
	}
}
