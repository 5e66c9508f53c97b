// Package testenv gives tests real servers of their own: one throwaway PostgreSQL cluster per test process, with a
// fresh database for each test, and a throwaway redis-server for each test that asks. They listen on unix sockets, so
// any number of test runs share a machine. They end with the test process, however it ends, and run no goroutine in it.
//
// What tests write is never synced to disk. Benchmarks get servers that are as careful as in production: PostgreSQL
// syncs each commit, Redis its log every second.
package testenv

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"sandyard/dev"
)

// shared and synced start the process's clusters at their first call. Tests of a process have no other place to meet.
//
//nolint:gochecknoglobals // one cluster per test process is the point
var (
	shared = sync.OnceValues(func() (*cluster, error) { return startCluster(dev.Options{Throwaway: true}) })
	synced = sync.OnceValues(func() (*cluster, error) { return startCluster(dev.Options{Throwaway: true, Synced: true}) })
)

// Database makes an empty database for the test alone and returns its connection URL. When the test ends, connections
// still open are ended and the database is gone.
func Database(t testing.TB) string {
	t.Helper()
	start := shared
	if isBenchmark(t) {
		start = synced
	}
	c := started(t, start)
	return lend(t, c, c.take, c.giveBack)
}

func started(t testing.TB, start func() (*cluster, error)) *cluster {
	t.Helper()
	c, err := start()
	if err != nil {
		t.Fatalf("start the test's PostgreSQL: %v", err)
	}
	return c
}

// lend takes a database for the test and gives it back at its end.
func lend(t testing.TB, c *cluster,
	take func(context.Context) (string, error), giveBack func(ctx context.Context, name string) error,
) (dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience())
	defer cancel()
	name, err := take(ctx)
	if err != nil {
		t.Fatalf("make the test's database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience())
		defer cancel()
		if err := giveBack(ctx, name); err != nil {
			t.Errorf("clear the test's database: %v", err)
		}
	})
	return c.server.DatabaseDSN(name)
}

// Redis starts a redis-server for the test alone, which may do anything to it, and returns how to reach it. It is
// stopped when the test ends.
func Redis(t testing.TB) (network, addr string, db int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience())
	defer cancel()
	server, err := dev.StartRedis(ctx, tempDir(), dev.Options{Throwaway: true, Synced: isBenchmark(t)})
	if err != nil {
		t.Fatalf("start the test's Redis: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the test's Redis: %v", err)
		}
	})
	return server.Network(), server.Addr(), 0
}

func isBenchmark(t testing.TB) bool {
	_, yes := t.(*testing.B)
	return yes
}

func startCluster(o dev.Options) (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience())
	defer cancel()
	server, err := dev.StartPostgres(ctx, tempDir(), o)
	if err != nil {
		return nil, err
	}
	return &cluster{server: server}, nil
}

// tempDir names a new directory straight under the temporary one: the servers' user may enter that, and socket paths
// stay short. The server makes it, and removes it at its end.
func tempDir() string {
	return filepath.Join(os.TempDir(), "sandyard-test-"+uuid.NewString()[:13])
}

// Long skips a test that takes many seconds, many rows or much memory, or whose verdict hangs on the clock, where tests are to
// be short, as under `make test`. `make verify` runs it.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make verify: " + why)
	}
}
