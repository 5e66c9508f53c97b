package dev_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sandyard/dev"
)

const patience = time.Minute

// TestMain also plays the parent that is killed: started with this variable, the binary runs both servers until then.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DEV_TEST_VICTIM"); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m)
}

func TestPostgresKeepsItsDataOverRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(workDir(t), "postgres")
	first := startPostgres(t, dir, dev.Options{})
	query(t, first.DSN(), "create table kept as select 42 as answer")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := startPostgres(t, dir, dev.Options{})
	query(t, second.DSN(), "select answer from kept")
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresListensOnAPrivateSocketOnly(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, filepath.Join(workDir(t), "postgres"), dev.Options{Throwaway: true})
	defer stop(t, pg.Stop)
	if got := query(t, pg.DSN(), "show listen_addresses"); got != "" {
		t.Errorf("listens on %q", got)
	}
	host, err := pgx.ParseConfig(pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(host.Host)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %v", info.Mode())
	}
}

func TestPostgresIgnoresALockFileWhosePidIsTakenByAnother(t *testing.T) {
	t.Parallel()
	base := workDir(t)
	dir := filepath.Join(base, "postgres")
	stop(t, startPostgres(t, dir, dev.Options{}).Stop)

	// PostgreSQL respects the recorded pid only of a process of its own user: another cluster's will do.
	other := startPostgres(t, filepath.Join(base, "other"), dev.Options{Throwaway: true})
	defer stop(t, other.Stop)
	lockFile, err := os.ReadFile(filepath.Join(base, "other", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(lockFile), "\n")
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(pid+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop(t, startPostgres(t, dir, dev.Options{}).Stop)
}

func TestASecondStartInTheSameDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	pg := startPostgres(t, filepath.Join(dir, "postgres"), dev.Options{Throwaway: true})
	defer stop(t, pg.Stop)
	r := startRedis(t, filepath.Join(dir, "redis"), dev.Options{Throwaway: true})
	defer stop(t, r.Stop)

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := dev.StartPostgres(ctx, filepath.Join(dir, "postgres"), dev.Options{}); !errors.Is(err, dev.ErrInUse) {
		t.Errorf("PostgreSQL: %v", err)
	}
	if _, err := dev.StartRedis(ctx, filepath.Join(dir, "redis"), dev.Options{}); !errors.Is(err, dev.ErrInUse) {
		t.Errorf("Redis: %v", err)
	}
	query(t, pg.DSN(), "select 1")
}

func TestRedisKeepsItsDataOverRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(workDir(t), "redis")
	first := startRedis(t, dir, dev.Options{})
	do(t, first.URL(), func(ctx context.Context, c *redis.Client) error { return c.Set(ctx, "k", "v", 0).Err() })
	stop(t, first.Stop)
	second := startRedis(t, dir, dev.Options{})
	do(t, second.URL(), func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "k").Err() })
	do(t, second.URL(), func(ctx context.Context, c *redis.Client) error {
		if policy := c.ConfigGet(ctx, "maxmemory-policy").Val()["maxmemory-policy"]; policy != "noeviction" {
			return errors.New("maxmemory-policy is " + policy)
		}
		return nil
	})
	stop(t, second.Stop)
}

func TestLongDirectoriesGetShortSockets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(workDir(t), strings.Repeat("long", 30))
	pg := startPostgres(t, filepath.Join(dir, "postgres"), dev.Options{Throwaway: true})
	query(t, pg.DSN(), "select 1")
	r := startRedis(t, filepath.Join(dir, "redis"), dev.Options{Throwaway: true})
	do(t, r.URL(), func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	short := filepath.Dir(r.Addr())
	stop(t, pg.Stop)
	stop(t, r.Stop)
	if _, err := os.Stat(short); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the short socket directory was left: %v", err)
	}
}

// Root's home is closed to the user PostgreSQL has to run as.
func TestADirectoryBehindAClosedOneStillWorks(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(workDir(t), "home")
	if err := os.Mkdir(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "postgres")
	first := startPostgres(t, dir, dev.Options{})
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(target) })
	query(t, first.DSN(), "create table kept as select 42")
	stop(t, first.Stop)
	second := startPostgres(t, dir, dev.Options{})
	query(t, second.DSN(), "table kept")
	stop(t, second.Stop)
	if info, err := os.Stat(parent); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the parent's mode became %v, %v", info.Mode(), err)
	}
}

func TestThrowawayLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	pg := startPostgres(t, filepath.Join(dir, "postgres"), dev.Options{Throwaway: true})
	r := startRedis(t, filepath.Join(dir, "redis"), dev.Options{Throwaway: true})
	stop(t, pg.Stop)
	stop(t, r.Stop)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("left %v, %v", left, err)
	}
}

func TestServersEndWithAKilledParentAndStartAgain(t *testing.T) {
	t.Parallel()
	dir := workDir(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = append(os.Environ(), "DEV_TEST_VICTIM="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready"))
	if _, err := out.Read(ready); err != nil || string(ready) != "ready" {
		t.Fatalf("the parent said %q, %v", ready, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed: an error is certain

	// A start waits for the dead parent's servers to be gone: it would be refused if they stayed.
	pg := startPostgres(t, filepath.Join(dir, "postgres"), dev.Options{})
	query(t, pg.DSN(), "table kept")
	stop(t, pg.Stop)
	stop(t, startRedis(t, filepath.Join(dir, "redis"), dev.Options{}).Stop)
}

func TestWhatTheServerSaidIsInTheError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(workDir(t), "redis")
	stop(t, startRedis(t, dir, dev.Options{}).Stop)
	manifest := filepath.Join(dir, "appendonlydir", "appendonly.aof.manifest")
	if err := os.WriteFile(manifest, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dev.StartRedis(context.Background(), dir, dev.Options{})
	if err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Fatalf("got %v", err)
	}
}

func victim(dir string) {
	ctx := context.Background()
	pg, err := dev.StartPostgres(ctx, filepath.Join(dir, "postgres"), dev.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := dev.StartRedis(ctx, filepath.Join(dir, "redis"), dev.Options{}); err != nil {
		panic(err)
	}
	conn, err := pgx.Connect(ctx, pg.DSN())
	if err != nil {
		panic(err)
	}
	if _, err := conn.Exec(ctx, "create table kept as select 42"); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("ready")
	select {}
}

// workDir is a directory the servers' user may enter, unlike the test's own when run by root.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandyard-dev-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func startPostgres(t *testing.T, dir string, o dev.Options) *dev.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pg, err := dev.StartPostgres(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return pg
}

func startRedis(t *testing.T, dir string, o dev.Options) *dev.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := dev.StartRedis(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func stop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// query runs one statement and returns the first column of its first row as text, or nothing.
func query(t *testing.T, dsn, statement string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return ""
	}
	return string(results[0].Rows[0][0])
}

func do(t *testing.T, address string, use func(context.Context, *redis.Client) error) {
	t.Helper()
	opts, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := use(ctx, client); err != nil {
		t.Fatal(err)
	}
}
