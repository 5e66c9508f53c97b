// Package local runs sandboxes as processes of this machine, in namespaces, under control groups and a filter of
// system calls, without any engine. It is there for development, for tests and for code that is trusted to begin with:
// it shares the kernel like any container, and it has not had the years of attacks that engines have. It is not the
// boundary for production.
//
// Every sandbox has the same guest as in a container, worked by package envd. A small process per sandbox, the shim,
// holds the guest's standard input and output, so that its commands survive the worker. All that belongs to a sandbox
// is a directory, a control group and the processes in it; any worker with the same data directory finds them.
package local

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/guestconn"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/filter"
)

// Warning is what everybody who chooses this provider should read.
const Warning = "local sandboxes share this machine's kernel and are not the boundary for production: use them for development, tests and trusted code"

// Config says where sandboxes live and what they are made from.
type Config struct {
	// Dir holds images, the guest's programs and the sandboxes' own directories. All workers that share it, on one
	// machine, share the sandboxes.
	Dir string
	// Fleet names the installation. Only sandboxes that carry it are ever listed, adopted or removed.
	Fleet string
	// GuestPath is the directory of the programs "guest", "sup" and "sandbox-shim".
	GuestPath string
	// StartConcurrency limits starts in flight. 0 = the number of cores.
	StartConcurrency int
	// Defaults fill what a Spec leaves at zero.
	Defaults providers.Resources
	// Outbound makes the connections that sandboxes ask for. Nil = they get none.
	Outbound providers.Outbound
	Logger   *slog.Logger
}

// Provider is this machine as a sandbox provider. It implements providers.Provider and providers.Pauser.
type Provider struct {
	cfg      Config
	groups   cgroup.Hierarchy
	programs *programs
	filter   []byte
	starts   chan struct{} // one token per start in flight
	children children
	guests   *guestconn.Guests[box]
	life     guestconn.Life
	// work counts goroutines that outlive the call which began them; Close waits for them, and ends life when that takes too long.
	work sync.WaitGroup
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
)

// New prepares the machine. It answers a providers.Unavailable error that says what is missing where sandboxes cannot
// be made here.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := Probe(); err != nil {
		return nil, err
	}
	if err := keepInherited(); err != nil {
		return nil, providers.Unavailable.Errorf("list the open files: %w", err)
	}
	life := guestconn.NewLife() //nolint:contextcheck // it ends with Close
	p := &Provider{cfg: cfg, life: life, starts: make(chan struct{}, cfg.StartConcurrency)}
	p.guests = guestconn.New(backend{p}, confine.UserName, cfg.Outbound, cfg.Logger)
	if p.groups, err = cgroup.Find(); err != nil {
		return nil, providers.Unavailable.Errorf("find the cgroups: %w", err)
	}
	if p.filter, err = filter.Compile(); err != nil {
		return nil, providers.Unavailable.Errorf("build the seccomp filter: %w", err)
	}
	if err := p.prepareDir(); err != nil {
		return nil, providers.Unavailable.Errorf("prepare %s: %w", cfg.Dir, err)
	}
	if p.programs, err = openPrograms(cfg.Dir, cfg.GuestPath); err != nil {
		return nil, err
	}
	cfg.Logger.WarnContext(ctx, "NOT A PRODUCTION BOUNDARY: "+Warning, "provider", "local", "dir", cfg.Dir)
	return p, nil
}

func (c Config) complete() (Config, error) {
	if c.Fleet == "" {
		return c, providers.Invalid.Errorf("the local provider needs a fleet name; set SANDYARD_FLEET")
	}
	if c.Dir == "" {
		return c, providers.Invalid.Errorf("the local provider needs a data directory; set LOCAL_DIR")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, providers.Invalid.Errorf("data directory %s: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.StartConcurrency <= 0 {
		c.StartConcurrency = runtime.NumCPU()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Defaults = confine.Defaults(c.Defaults)
	return c, nil
}

// Defaults implements providers.Defaulter.
func (p *Provider) Defaults() providers.Resources { return p.cfg.Defaults }

// DiskFree implements providers.DiskReporter.
func (p *Provider) DiskFree(context.Context) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(p.cfg.Dir, &fs); err != nil {
		return 0, providers.Unavailable.Errorf("read the free space of %s: %w", p.cfg.Dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	c := guestconn.Capabilities("local")
	c.Warning = Warning
	return c
}

// EngineID is the data directory's own identity: two workers with the same answer share their sandboxes.
func (p *Provider) EngineID(context.Context) (string, error) {
	id, err := readID(filepath.Join(p.cfg.Dir, "id"))
	if err != nil {
		return "", providers.Unavailable.Errorf("read the data directory's identity: %w", err)
	}
	return id, nil
}

// Ensure answers nil when the data directory holds the image.
func (p *Provider) Ensure(_ context.Context, image string) error {
	_, err := p.image(image)
	return err
}

// closePatience is how long Close waits for creates in flight. One that is given up is left to the next attempt.
const closePatience = 3 * time.Second

// Close lets go of every sandbox and waits for creates in flight.
func (p *Provider) Close() error {
	defer p.life.End()
	defer time.AfterFunc(closePatience, p.life.End).Stop()
	p.guests.Close()
	p.work.Wait()
	p.children.reap()
	if err := p.programs.Close(); err != nil {
		return fmt.Errorf("close the programs: %w", err)
	}
	return nil
}
