//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sandyard/dev"
)

// dockerSocket is where a process finds its wire to the engine.
const dockerSocket = "docker.sock"

// setup is what systems differ in.
type setup struct {
	bin         string // directory of the programs
	provider    string
	liveRestore bool     // of an engine: it leaves its containers alone when it ends
	skewed      bool     // the clocks of the processes are wrong
	extra       []string // of the processes' environment
}

// system is a whole installation with servers and an engine of its own, in one directory.
type system struct {
	setup
	dir       string
	host      host
	key       string
	processes []*process // apis, then workers, then schedulers
	wires     []map[string]*wire

	postgres  *dev.Postgres
	redis     *dev.Redis
	databases sync.Mutex // held while PostgreSQL is away
	caches    sync.Mutex // held while Redis is away
	engines   sync.Mutex // held while the engine is away or is changed
}

func startSystem(ctx context.Context, as setup) (s *system, err error) {
	dir, err := os.MkdirTemp("", "sandyard-chaos-")
	if err != nil {
		return nil, err
	}
	s = &system{setup: as, dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
		return nil, err
	}
	if s.postgres, err = dev.StartPostgres(ctx, filepath.Join(dir, "postgres"), dev.Options{}); err != nil {
		return nil, err
	}
	if s.redis, err = startRedis(ctx, dir); err != nil {
		return nil, err
	}
	if s.host, err = startHost(as.provider, dir, as.liveRestore); err != nil { //nolint:contextcheck // it has a deadline of its own
		return nil, err
	}
	return s, s.startProcesses(ctx)
}

// startRedis starts one that writes nothing down: what it holds is gone with it.
func startRedis(ctx context.Context, dir string) (*dev.Redis, error) {
	return dev.StartRedis(ctx, filepath.Join(dir, "redis"), dev.Options{Throwaway: true})
}

func (s *system) startProcesses(ctx context.Context) error {
	for _, sub := range []string{"logs", "wires"} {
		if err := os.Mkdir(filepath.Join(s.dir, sub), 0o700); err != nil {
			return err
		}
	}
	for i := range processes {
		if err := s.addProcess(i); err != nil {
			return err
		}
	}
	if err := s.migrate(); err != nil {
		return err
	}
	// One API first: the first on a new database prints the first key.
	for i, p := range s.processes {
		if err := p.start(); err != nil {
			return err
		}
		if i == 0 {
			if err := s.awaitKey(ctx); err != nil {
				return err
			}
		}
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	for _, p := range s.processes {
		if off := time.Until(p.clock()) - p.skew; off.Abs() > 10*time.Minute {
			return fmt.Errorf("the clock of %s is to be wrong by %v, and is by %v more", p.name, p.skew, off)
		}
	}
	return nil
}

func nameOf(i int) (program, name string) {
	switch {
	case i < apis:
		program = "api"
	case i < apis+workers:
		program, i = "worker", i-apis
	default:
		program, i = "scheduler", i-apis-workers
	}
	return program, program + "-" + strconv.Itoa(i)
}

func (s *system) addProcess(i int) error {
	program, name := nameOf(i)
	at := filepath.Join(s.dir, "wires", name)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	postgres, err := pgx.ParseConfig(s.postgres.DSN())
	if err != nil {
		return err
	}
	const socket = ".s.PGSQL.5432"
	ends := map[string][2]string{
		"postgres": {filepath.Join(at, socket), filepath.Join(postgres.Host, socket)},
		"redis":    {filepath.Join(at, "redis.sock"), s.redis.Addr()},
	}
	if to := s.host.socket(); to != "" {
		ends["docker"] = [2]string{filepath.Join(at, dockerSocket), to}
	}
	wires := map[string]*wire{}
	s.wires = append(s.wires, wires)
	for server, end := range ends {
		if wires[server], err = openWire(end[0], end[1]); err != nil {
			return err
		}
	}
	p := &process{name: name, path: filepath.Join(s.bin, program), env: s.env(at), log: filepath.Join(s.dir, "logs", name+".log")}
	if s.skewed && skewable {
		p.skew = skews()[i%len(skews())]
	}
	s.processes = append(s.processes, p)
	return nil
}

func (s *system) env(wires string) []string {
	all := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"DATABASE_URL=postgres://sandyard@/sandyard?sslmode=disable&host=" + wires,
		"REDIS_URL=unix://" + filepath.Join(wires, "redis.sock"),
		"FIRST_KEY_FILE=" + filepath.Join(s.dir, "first-key"), "LISTEN_ADDR=127.0.0.1:0", "HEALTH_ADDR=127.0.0.1:0", "EDGE_ADDR=127.0.0.1:0", "GATEWAY_ADDR=127.0.0.1:0",
		"LEASE=" + lease.String(), "RECONCILE_EVERY=1s", "RECONCILE_GRACE=5s", "DRAIN_GRACE=5s", "POOL_SIZE=2", "POOL_MAX=2", "ENGINE_UNSAFE=allow",
		"WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "SANDBOX_TEMPLATES=python=" + image,
		"SANDYARD_FLEET=" + fleet, "WORKER_SLOTS=32", "MAX_MEMORY_MB=unlimited", "MAX_CPUS=unlimited", "MAX_PIDS=unlimited",
	}
	return append(append(all, s.host.env(wires)...), s.extra...)
}

func (s *system) migrate() error {
	p := &process{name: "migrate", path: filepath.Join(s.bin, "sandyard"), args: []string{"migrate"}, env: s.processes[0].env, log: filepath.Join(s.dir, "logs", "migrate.log")}
	if err := p.start(); err != nil {
		return err
	}
	return p.await(time.Minute)
}

func (s *system) awaitKey(ctx context.Context) error {
	return eventually(ctx, time.Minute, "the first API writes the first key", func() (bool, string) {
		key, err := os.ReadFile(filepath.Join(s.dir, "first-key"))
		s.key = strings.TrimSpace(string(key))
		return err == nil && s.key != "", "it has not"
	})
}

// awaitReady waits until all processes do their work.
func (s *system) awaitReady(ctx context.Context) error {
	return eventually(ctx, time.Minute, "all processes have started", func() (bool, string) {
		for i, p := range s.processes {
			if program, _ := nameOf(i); p.said(map[string]string{
				"api": `"msg":"API listens"`, "worker": `"msg":"worker started"`, "scheduler": `"msg":"scheduler started"`,
			}[program]) == "" {
				return false, p.name + " has not"
			}
		}
		return true, ""
	})
}

// addresses are where the APIs listen right now.
func (s *system) addresses() []string {
	var all []string
	for _, p := range s.processes[:apis] {
		if a := p.address(); a != "" {
			all = append(all, a)
		}
	}
	return all
}

// of picks a process of a program.
func (s *system) of(program string, target int) *process {
	switch program {
	case "api":
		return s.processes[target%apis]
	case "worker":
		return s.processes[apis+target%workers]
	default:
		return s.processes[apis+workers+target%schedulers]
	}
}

// inflict does a fault and returns when it is made good, with what exactly was hit.
func (s *system) inflict(ctx context.Context, f fault) (hit string, err error) {
	switch f.kind {
	case killWorker:
		return s.kill(f, "worker")
	case killScheduler:
		return s.kill(f, "scheduler")
	case killAPI:
		return s.kill(f, "api")
	case stopWorker:
		return s.stop(f, "worker")
	case endWorker:
		return s.end(f, "worker")
	case stopScheduler:
		return s.stop(f, "scheduler")
	case stopAPI:
		return s.stop(f, "api")
	case flushRedis:
		return "", s.withRedis(func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
	case restartRedis:
		return "", s.bounceRedis(ctx, f.lasts)
	case restartPostgres, crashPostgres:
		return "", s.bouncePostgres(ctx, f)
	case cutWire, holdWire:
		return s.sever(f)
	case hangServer:
		return s.hang(f)
	default:
		return s.strike(f)
	}
}

func (s *system) kill(f fault, program string) (string, error) {
	p := s.of(program, f.target)
	p.busy.Lock()
	defer p.busy.Unlock()
	p.kill()
	<-time.After(f.lasts)
	return p.name, p.start()
}

// end is what a rolling restart does: the process has its grace, and must keep it whatever else is down.
func (s *system) end(f fault, program string) (string, error) {
	p := s.of(program, f.target)
	p.busy.Lock()
	defer p.busy.Unlock()
	p.signal(syscall.SIGTERM)
	if err := p.await(time.Minute); err != nil && !p.unborn() {
		return p.name, fmt.Errorf("asked to end: %w", err)
	}
	<-time.After(f.lasts)
	return p.name, p.start()
}

func (s *system) stop(f fault, program string) (string, error) {
	p := s.of(program, f.target)
	p.busy.Lock()
	defer p.busy.Unlock()
	p.signal(syscall.SIGSTOP)
	<-time.After(f.lasts)
	p.signal(syscall.SIGCONT)
	return p.name, nil
}

// withRedis calls f on the server while it is there.
func (s *system) withRedis(f func(*redis.Client) error) error {
	s.caches.Lock()
	defer s.caches.Unlock()
	c := redis.NewClient(&redis.Options{Network: s.redis.Network(), Addr: s.redis.Addr()})
	defer c.Close()
	return f(c)
}

func (s *system) bounceRedis(ctx context.Context, down time.Duration) (err error) {
	s.caches.Lock()
	defer s.caches.Unlock()
	if err := s.redis.Stop(); err != nil {
		return err
	}
	<-time.After(down)
	s.redis, err = startRedis(ctx, s.dir)
	return err
}

func (s *system) bouncePostgres(ctx context.Context, f fault) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	if f.kind == crashPostgres {
		if err := s.crash(); err != nil {
			return err
		}
		_ = s.postgres.Stop() // which complains about the crash
	} else if err := s.postgres.Stop(); err != nil {
		return err
	}
	<-time.After(f.lasts)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	server, err := dev.StartPostgres(ctx, filepath.Join(s.dir, "postgres"), dev.Options{})
	if err == nil {
		s.postgres = server
	}
	return err
}

// crash kills the postmaster; its children then end by themselves, without a checkpoint.
func (s *system) crash() error {
	lock, err := os.ReadFile(filepath.Join(s.dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(lock), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// sever breaks or silences the connections of one process to one server.
func (s *system) sever(f fault) (string, error) {
	i := f.target % processes
	if f.server == "docker" {
		i = apis + f.target%workers
	}
	_, name := nameOf(i)
	w := s.wires[i][f.server]
	if f.kind == cutWire {
		w.cut()
		return name, nil
	}
	p := s.processes[i]
	p.busy.Lock()
	defer p.busy.Unlock()
	release := w.hold()
	<-time.After(f.lasts)
	release()
	return name, nil
}

// hang has a server answer nobody for a while, although it lives and takes connections.
func (s *system) hang(f fault) (string, error) {
	for _, p := range s.processes {
		p.busy.Lock()
		defer p.busy.Unlock()
	}
	for _, wires := range s.wires {
		if w := wires[f.server]; w != nil {
			defer w.hold()()
		}
	}
	<-time.After(f.lasts)
	return f.server, nil
}

// strike is what is done to the sandboxes' host.
func (s *system) strike(f fault) (string, error) {
	s.engines.Lock()
	defer s.engines.Unlock()
	return s.host.strike(f)
}

// wired are the servers that processes reach by a wire of ours.
func (s *system) wired() []string {
	if s.host.socket() == "" {
		return []string{"redis", "postgres"}
	}
	return []string{"redis", "postgres", "docker"}
}

// stopProcesses asks all to end, as an operator does.
func (s *system) stopProcesses() error {
	var errs []error
	for _, p := range s.processes {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range s.processes {
		if err := p.await(time.Minute); err != nil {
			errs = append(errs, fmt.Errorf("%s, asked to end: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// close ends all that is left, and keeps the logs.
func (s *system) close() {
	for _, p := range s.processes {
		if p.cmd != nil && !p.ended() {
			p.kill()
		}
	}
	for _, wires := range s.wires {
		for _, w := range wires {
			w.close()
		}
	}
	if s.host != nil {
		s.host.Close()
	}
	if s.redis != nil {
		_ = s.redis.Stop()
	}
	if s.postgres != nil {
		_ = s.postgres.Stop()
	}
	_ = os.RemoveAll(filepath.Join(s.dir, "wires"))
	_ = os.RemoveAll(filepath.Join(s.dir, "postgres"))
}

// eventually waits until ok holds; why says what is still missing.
func eventually(ctx context.Context, limit time.Duration, what string, ok func() (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		done, why := ok()
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %v in vain until %s: %s", limit, what, why)
		}
	}
}
