package dev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	pgName       = "sandyard" // the database and its superuser
	pgSocket     = ".s.PGSQL.5432"
	pgStop       = "INT" // fast shutdown: sessions are ended, a checkpoint is written
	pgNoDatabase = "3D000"
)

// Postgres is a running private cluster.
type Postgres struct {
	keeper *keeper
	place  place
}

// StartPostgres starts the cluster in dir, making it at the first call, and returns when the database "sandyard" takes
// connections. It listens on a unix socket only, that only its owner and root may open; as root it runs as user
// postgres or nobody. One process at a time may run the cluster of a directory; others get ErrInUse.
func StartPostgres(ctx context.Context, dir string, o Options) (*Postgres, error) {
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p, err := newPlace(dir, pgSocket, owner)
	if err != nil {
		return nil, err
	}
	pg, err := bootPostgres(ctx, p, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgresql: %w", err), p.release())
	}
	return pg, nil
}

func bootPostgres(ctx context.Context, p place, o Options) (*Postgres, error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	bin, err := postgresBin(p)
	if err != nil {
		return nil, err
	}
	if err := makeCluster(ctx, p, bin); err != nil {
		return nil, err
	}
	if err := clearStale(p); err != nil {
		return nil, err
	}
	argv := append([]string{filepath.Join(bin, "postgres"), "-D", p.data(), "-k", p.sockets}, settings(o)...)
	k, err := startKeeper(p, lock, pgStop, filepath.Join(p.dir, "postgres.log"), o.Throwaway, argv...)
	if err != nil {
		return nil, err
	}
	pg := &Postgres{keeper: k, place: p}
	if err := k.await(ctx, pg.ensureDatabase); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return pg, nil
}

// DSN is the connection URL of the database, usable with pgx and GORM.
func (pg *Postgres) DSN() string { return pg.DatabaseDSN(pgName) }

// DatabaseDSN is the connection URL of another database of the cluster.
func (pg *Postgres) DatabaseDSN(name string) string {
	query := url.Values{"host": {pg.place.sockets}, "sslmode": {"disable"}}
	return "postgres://" + pgName + "@/" + url.PathEscape(name) + "?" + query.Encode()
}

// Stop ends the cluster in order and returns when all its processes are gone. Call it once.
func (pg *Postgres) Stop() error {
	if err := errors.Join(pg.keeper.stop(), pg.place.release()); err != nil {
		return fmt.Errorf("stop postgresql: %w", err)
	}
	return nil
}

func (pg *Postgres) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, pg.DSN())
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == pgNoDatabase {
		return pg.createDatabase(ctx)
	}
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (pg *Postgres) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, pg.DatabaseDSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "create database "+pgName+" strategy file_copy")
	return err
}

func (p place) data() string { return filepath.Join(p.dir, "data") }

// makeCluster runs initdb beside the final place: a cluster cut off half-way must not look like a whole one.
func makeCluster(ctx context.Context, p place, bin string) error {
	if _, err := os.Stat(p.data()); err == nil {
		return nil
	}
	fresh := p.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear unfinished cluster: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", fresh, "-U", pgName, "-A", "trust",
		"-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env = p.dir, serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.owner.credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make cluster: %w: %s", err, out)
	}
	if err := os.Rename(fresh, p.data()); err != nil {
		return fmt.Errorf("make cluster: %w", err)
	}
	return nil
}

// clearStale removes what a killed server left. The directory's lock is ours, so no server of it is alive, whatever
// process has the recorded pid by now.
func clearStale(p place) error {
	for _, path := range []string{
		filepath.Join(p.data(), "postmaster.pid"),
		filepath.Join(p.sockets, pgSocket),
		filepath.Join(p.sockets, pgSocket+".lock"),
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear stale file: %w", err)
		}
	}
	return nil
}

func settings(o Options) []string {
	args := []string{
		"-c", "listen_addresses=", "-c", "unix_socket_permissions=0700", "-c", "timezone=UTC",
		"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "jit=off",
		"-c", "wal_level=minimal", "-c", "max_wal_senders=0",
	}
	if o.Throwaway {
		args = append(args, "-c", "max_connections=500")
	}
	if o.careless() {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
		// Connections of tests are short: planned for each call, most queries would take longer to plan than to run.
		args = append(args, "-c", "plan_cache_mode=force_generic_plan")
	}
	return args
}

// postgresBin finds the server's programs: those of the cluster's own major version, or the newest for a new cluster.
func postgresBin(p place) (string, error) {
	version, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err == nil {
		return matchingBin(p, strings.TrimSpace(string(version)))
	}
	if bin := newestBin(); bin != "" {
		return bin, nil
	}
	return "", fmt.Errorf("postgresql server: %w: run apt-get install postgresql", ErrNotInstalled)
}

func matchingBin(p place, version string) (string, error) {
	for _, bin := range postgresBins() {
		if majorOf(bin) == version {
			return bin, nil
		}
	}
	return "", fmt.Errorf("postgresql %s, which made %s: %w: run apt-get install postgresql-%s, or remove the directory",
		version, p.data(), ErrNotInstalled, version)
}

func newestBin() string {
	newest, best := "", -1
	for _, bin := range postgresBins() {
		if major, err := strconv.Atoi(majorOf(bin)); err == nil && major > best {
			newest, best = bin, major
		}
	}
	return newest
}

// postgresBins lists where the distributions keep the servers, none of it on PATH, and then PATH.
func postgresBins() []string {
	var bins []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres"} {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed: no error is possible
		bins = append(bins, found...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		bins = append(bins, path)
	}
	for i := range bins {
		bins[i] = filepath.Dir(bins[i])
	}
	return bins
}

// majorOf asks the server itself: "postgres (PostgreSQL) 15.8 (Debian ...)".
func majorOf(bin string) string {
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 3 {
		return ""
	}
	major, _, _ := strings.Cut(fields[2], ".")
	return major
}
