package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs/secrets"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/catalog"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
	"sandyard/providers/local"
)

// RunWorker runs a worker process until ctx ends.
func RunWorker(ctx context.Context, c Worker, log *slog.Logger) error {
	p, err := Connect(ctx, c.Common, log)
	if err != nil {
		return err
	}
	defer p.Close(log)
	reg := NewRegistry()
	stop, err := serveHealth(c.Health, p, reg, log)
	if err != nil {
		return err
	}
	defer stop()
	return Work(ctx, c, p, reg, log)
}

// Work opens the providers and takes jobs until ctx ends, or operators want all its nodes to leave.
func Work(ctx context.Context, c Worker, p *Parts, reg *prometheus.Registry, log *slog.Logger) error {
	if err := c.nameFleet(ctx, p, log); err != nil {
		return err
	}
	closed := &netguard.Services{}
	outside := newEgress(c.Egress, closed, p, log)
	countEgress(reg, outside)
	d, err := c.openDoor(ctx, p, log)
	if err != nil {
		return err
	}
	installation, err := newOwn(c, d.url, p, closed, log)
	if err != nil {
		return err
	}
	defer installation.watch(ctx)()
	hooks := webhook.New(p.Store, p.Queue, netguard.Rules{Deny: c.EgressDeny, Own: closed, Allow: c.Allow}, log)
	defer hooks.Close()
	keys, err := c.vault()
	if err != nil {
		return err
	}
	if err := p.countSecurity(reg); err != nil {
		return err
	}
	f := &floor{
		Worker:  c,
		parts:   p,
		reg:     reg,
		outside: outside,
		hooks:   hooks,
		secrets: secrets.New(p.Store, keys),
		gateway: d.url,
		log:     log,
	}
	defer f.closeAll()
	defer d.serve(ctx, p, f.enter, log)()
	return f.run(ctx)
}

// nameFleet gives the installation the name that its database keeps, where the operator gives none: two installations
// on one engine never share one, and so remove nothing of each other's.
func (c *Worker) nameFleet(ctx context.Context, p *Parts, log *slog.Logger) (err error) {
	if c.Fleet == "" {
		fresh := strings.ToLower(models.NewID("fleet-"))
		c.Fleet, err = ask(
			ctx,
			log,
			func(ctx context.Context) (string, error) { return p.Store.SettingOrSet(ctx, "fleet", fresh) },
		)
	}
	return err
}

func (f *floor) open(ctx context.Context, name string, log *slog.Logger) (providers.Provider, error) {
	c, outside := f.Worker, f.outside
	guest, err := c.guest()
	if err != nil {
		return nil, fmt.Errorf("find the guest: %w", err)
	}
	p, err := catalog.Open(ctx, name, catalog.Config{
		Docker: docker.Config{
			Host:        c.DockerHost,
			Fleet:       c.Fleet,
			Guest:       os.DirFS(guest),
			Runtime:     c.Runtime,
			Pull:        c.Pull,
			Unsafe:      c.Unsafe == "allow",
			Outbound:    outside,
			Logger:      log,
			Defaults:    c.resources(),
			Pool:        pool.Config{Size: c.PoolSize, Max: c.PoolMax},
			DiskReserve: int64(c.DiskReserve) << 20,
		},
		E2B:      c.e2b(log),
		Daytona:  c.daytona(log),
		Runloop:  c.runloop(log),
		Modal:    c.modal(log),
		Accounts: f.accounts,
		Keyless:  c.ProviderKeys == tenantsKeys,
		Local: local.Config{
			Dir:       c.LocalDir,
			Fleet:     c.Fleet,
			GuestPath: guest,
			Outbound:  outside,
			Logger:    log,
			Defaults:  c.resources(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open provider %s: %w", name, err)
	}
	return p, nil
}

// countPool shows the pool of a provider that has one.
func countPool(reg prometheus.Registerer, p providers.Provider) {
	if pool, ok := p.(interface{ Waiting() int }); ok {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sandyard_pool_waiting", Help: "Started containers that wait for sandboxes.",
		}, func() float64 { return float64(pool.Waiting()) }))
	}
}

// notAway says that waiting for a provider will not help.
func notAway(err error) bool { return !errors.Is(err, &providers.Error{Class: providers.Unavailable}) }

// engineOf names the engine that a provider's sandboxes live on, where they live on one.
func engineOf(ctx context.Context, p providers.Provider) (string, error) {
	if e, ok := p.(interface {
		EngineID(ctx context.Context) (string, error)
	}); ok {
		return e.EngineID(ctx)
	}
	return "", nil
}

// ensureImages sees to the templates' images: a job never waits for a download.
func ensureImages(ctx context.Context, p providers.Provider, c Worker, log *slog.Logger) {
	e, ok := p.(interface {
		Ensure(ctx context.Context, image string) error
	})
	if !ok {
		return
	}
	for template, image := range c.Templates {
		if err := e.Ensure(ctx, image); err != nil {
			log.InfoContext(ctx, "template image missing on this engine, its sandboxes will fail",
				"template", template, "error", err)
		}
	}
}
