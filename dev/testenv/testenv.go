// Package testenv gives tests real servers of their own: one throwaway PostgreSQL cluster per test process, with a
// fresh database for each test, and a throwaway redis-server for each test that asks. They listen on unix sockets, so
// any number of test runs share a machine. They end with the test process, however it ends, and run no goroutine in it.
package testenv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sandyard/dev"
)

const startTimeout = time.Minute

// cluster starts the process's PostgreSQL at its first call. A process has no other moment to share one between tests.
var cluster = sync.OnceValues(startCluster) //nolint:gochecknoglobals // one cluster per test process is the point

// Database makes a fresh, empty database for the test and returns its connection URL. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	pg, err := cluster()
	if err != nil {
		t.Fatalf("start the test's PostgreSQL: %v", err)
	}
	name := "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := execute(pg, "create database "+name); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(pg, "drop database "+name+" with (force)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return pg.DatabaseDSN(name)
}

// Redis starts a redis-server for the test alone, which may so do anything to it, and returns how to reach it. It is
// stopped when the test ends.
func Redis(t testing.TB) (network, addr string, db int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := dev.StartRedis(ctx, tempDir(), dev.Throwaway())
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

func startCluster() (*dev.Postgres, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return dev.StartPostgres(ctx, tempDir(), dev.Throwaway())
}

// tempDir names a new directory straight under the temporary one: the servers' user may enter that, and socket paths
// stay short. The server makes it, and removes it at its end.
func tempDir() string {
	return filepath.Join(os.TempDir(), "sandyard-test-"+uuid.NewString()[:13])
}

func execute(pg *dev.Postgres, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, pg.DatabaseDSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}
