package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sandyard/app"
	"sandyard/dev"
	"sandyard/jobs/queue"
	"sandyard/models"
	"sandyard/vault"
)

const (
	// devDir is where the data of a development installation lives.
	devDir = ".sandyard"
	// databaseFile says in it how its database is reached while it runs.
	databaseFile = "database"
)

// devStack is the whole system in one process, with its servers as children.
type devStack struct {
	dir      string
	postgres *dev.Postgres
	redis    *dev.Redis
	parts    *app.Parts
	doors    app.Doors
	key      string
	log      *slog.Logger
	logFile  *os.File
	worker   app.Worker
	stop     context.CancelFunc
	running  *errgroup.Group
}

func devCommand() *cobra.Command {
	var once bool
	var dir, addr string
	c := &cobra.Command{
		Use: "dev", Short: "run the whole system on this machine and try it", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runDev(c.Context(), dir, addr, once) },
	}
	c.Flags().BoolVar(&once, "once", false, "stop after the first program")
	c.Flags().StringVar(&dir, "dir", devDir, "data directory")
	_ = c.MarkFlagDirname("dir") // there is one
	c.Flags().StringVar(&addr, "addr", os.Getenv("LISTEN_ADDR"), "address of the API; default LISTEN_ADDR, else "+usualAPI+
		"; if that port is taken, a free port that later starts keep")
	return c
}

// runDev runs everything on this machine: its own PostgreSQL and Redis in dir, and API, worker and scheduler in this
// process. It runs one program in a sandbox, then stays until ctx ends, and leaves no sandbox behind.
func runDev(ctx context.Context, dir, addr string, once bool) error {
	began := time.Now()
	d, err := startDev(ctx, dir, addr)
	if err != nil {
		return err
	}
	fmt.Printf("Sandyard is up after %v.\n", time.Since(began).Round(time.Millisecond))
	err = d.tryOut(ctx)
	if err == nil && !once {
		d.greet()
		err = d.wait(ctx)
	}
	return errors.Join(err, d.shutdown(ctx))
}

func startDev(ctx context.Context, dir, addr string) (d *devStack, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d = &devStack{dir: dir}
	for _, step := range []func(context.Context) error{
		d.openLog, d.startServers, d.configure, d.migrate, d.readKey,
		func(context.Context) error { d.doors, err = openDoors(dir, addr, os.Getenv("EDGE_ADDR")); return err },
		d.startProcesses, d.awaitReady,
	} {
		if err = step(ctx); err != nil {
			return nil, errors.Join(err, d.shutdown(ctx))
		}
	}
	return d, nil
}

func (d *devStack) openLog(context.Context) (err error) {
	d.logFile, err = os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	d.log = app.NewLogger(d.logFile, slog.LevelInfo)
	queue.LogRedis(d.log)
	return nil
}

func (d *devStack) startServers(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() (err error) {
		d.postgres, err = dev.StartPostgres(ctx, filepath.Join(d.dir, "postgres"), dev.Options{})
		return err
	})
	g.Go(func() (err error) {
		d.redis, err = dev.StartRedis(ctx, filepath.Join(d.dir, "redis"), dev.Options{})
		return err
	})
	return g.Wait()
}

// configure fills in what dev mode knows better than the environment.
func (d *devStack) configure(ctx context.Context) error {
	for name, value := range map[string]string{"DATABASE_URL": d.postgres.DSN(), "REDIS_URL": d.redis.URL(), "HEALTH_ADDR": "", "GATEWAY_ADDR": "127.0.0.1:0"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if err := d.secretsKey(); err != nil {
		return err
	}
	if os.Getenv("ENGINE_UNSAFE") == "" {
		if err := os.Setenv("ENGINE_UNSAFE", "allow"); err != nil {
			return err
		}
		fmt.Println("Development: engines with known escapes are allowed (ENGINE_UNSAFE=allow); the log names the escapes.")
	}
	var err error
	if d.worker, err = app.Load[app.Worker](); err != nil {
		return err
	}
	if os.Getenv("SANDYARD_FLEET") == "" {
		d.worker.Fleet = fleetOf(d.dir)
	}
	d.worker.Grace = 0 // whoever presses Ctrl-C does not want to wait; commands are given up with their sandboxes
	d.parts, err = app.Connect(ctx, d.worker.Common, d.log)
	return err
}

// secretsKey keeps a key for secrets in dir, unless the environment has one.
func (d *devStack) secretsKey() error {
	if os.Getenv("SECRETS_KEY") != "" || os.Getenv("SECRETS_KEY_FILE") != "" {
		return nil
	}
	path := filepath.Join(d.dir, "secrets-key")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		err = errors.Join(os.WriteFile(path+".new", []byte(vault.NewKey()+"\n"), 0o600), os.Rename(path+".new", path))
		if err != nil {
			return err
		}
	}
	return os.Setenv("SECRETS_KEY_FILE", path)
}

// fleetOf is the same for every start in dir, so that a start after a crash finds what the one before left.
func fleetOf(dir string) string {
	h := fnv.New64a()
	h.Write([]byte(dir))
	return fmt.Sprintf("dev-%x", h.Sum64())
}

// migrate also says where sandyard key and sandyard node find the database while it runs.
func (d *devStack) migrate(ctx context.Context) error {
	if err := d.parts.Store.Migrate(ctx, d.log); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, databaseFile), []byte(d.postgres.DSN()+"\n"), 0o600)
}

// readKey keeps the first key in dir: on a developer's own machine, losing it is worse than storing it.
func (d *devStack) readKey(ctx context.Context) error {
	path := filepath.Join(d.dir, "key")
	key, err := d.parts.Store.Bootstrap(ctx)
	if err != nil {
		return err
	}
	if key != "" {
		d.key = key
		return os.WriteFile(path, []byte(key+"\n"), 0o600)
	}
	b, err := os.ReadFile(path)
	d.key = strings.TrimSpace(string(b))
	if errors.Is(err, os.ErrNotExist) {
		name := "dev " + time.Now().UTC().Format(time.RFC3339Nano) // of the one that was lost with its file it is another
		d.key, err = d.parts.Store.CreateKey(ctx, tenant, name, []string{models.ScopeSandboxes, models.ScopeOperator})
		return errors.Join(err, os.WriteFile(path, []byte(d.key+"\n"), 0o600))
	}
	return err
}

// domain is where the ports of sandboxes are reached; browsers take every name below localhost for this machine.
func (d *devStack) domain() string {
	if given := os.Getenv("EDGE_DOMAIN"); given != "" {
		return given
	}
	_, port, _ := net.SplitHostPort(d.doors.Edge.Addr().String()) // what net says, net can read
	return net.JoinHostPort("localhost", port)
}

func (d *devStack) startProcesses(ctx context.Context) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // they outlive Ctrl-C until the sandboxes are removed
	d.stop = stop
	g, ctx := errgroup.WithContext(ctx)
	d.running = g
	reg := app.NewRegistry()
	api, err := app.Load[app.API]()
	if err != nil {
		return err
	}
	api.Domain = d.domain()
	g.Go(func() error { return app.ServeAPI(ctx, api, d.parts, d.doors, reg, d.log) })
	g.Go(func() error { return app.Work(ctx, d.worker, d.parts, reg, d.log) })
	g.Go(func() error {
		app.Schedule(ctx, app.Scheduler{Common: d.worker.Common, Sandboxes: d.worker.Sandboxes, Callbacks: d.worker.Callbacks},
			d.parts, d.log)
		return nil
	})
	return nil
}

// wait returns when ctx ends or one of the processes does.
func (d *devStack) wait(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- d.running.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Println("\nStopping: removing sandboxes.")
		return nil
	}
}
