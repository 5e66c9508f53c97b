package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sandyard/guard"
)

const (
	// ownEvery is how often it is asked anew where the installation's own hosts are.
	ownEvery = time.Minute
	// ownPatience is how long one look may take. A start waits for the first.
	ownPatience = 5 * time.Second
)

// own finds the addresses of what the installation stands on, so that no sandbox reaches them, wherever they are:
// PostgreSQL, Redis, the engine and the workers' gateways. A host of which nothing is heard now keeps the addresses it had.
type own struct {
	hosts    []string // by configuration
	gateways func(context.Context) ([]string, error)
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	found    *guard.Addresses
	log      *slog.Logger

	known map[string][]netip.Addr
}

func newOwn(c Worker, gateway string, p *Parts, found *guard.Addresses, log *slog.Logger) (*own, error) {
	hosts, err := c.ownHosts(gateway)
	if err != nil {
		return nil, err
	}
	return &own{
		hosts: hosts, found: found, log: log, known: map[string][]netip.Addr{},
		gateways: func(ctx context.Context) ([]string, error) { return gatewayHosts(ctx, p) },
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}, nil
}

// ownHosts are the hosts that the configuration names, with that of this worker's gateway. Sockets have none.
func (c Worker) ownHosts(gateway string) ([]string, error) {
	database, err := pgconn.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	hosts := []string{database.Host}
	for _, other := range database.Fallbacks {
		hosts = append(hosts, other.Host)
	}
	for _, text := range []string{c.RedisURL, c.DockerHost, gateway} {
		if u, err := url.Parse(text); err == nil && u.Scheme != "unix" {
			hosts = append(hosts, u.Hostname())
		}
	}
	hosts = slices.DeleteFunc(hosts, func(host string) bool { return host == "" || filepath.IsAbs(host) })
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// gatewayHosts are those of the workers in the node table.
func gatewayHosts(ctx context.Context, p *Parts) ([]string, error) {
	nodes, err := p.Store.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the nodes: %w", err)
	}
	var hosts []string
	for _, n := range nodes {
		if u, err := url.Parse(n.Gateway); err == nil && u.Hostname() != "" {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts, nil
}

// watch looks once, and then goes on looking until stop is called.
func (o *own) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	o.look(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(ownEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.look(ctx)
			}
		}
	})
	return func() {
		cancel()
		loop.Wait()
	}
}

// look asks for all addresses.
func (o *own) look(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, ownPatience)
	defer stop()
	gateways, err := o.gateways(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "addresses of the workers are not known, sandboxes may reach those that are new", "error", err)
	}
	wanted := append(gateways, o.hosts...)
	o.lookUp(ctx, wanted)
	if err == nil {
		maps.DeleteFunc(o.known, func(host string, _ []netip.Addr) bool { return !slices.Contains(wanted, host) })
	}
	o.found.Set(slices.Concat(slices.Collect(maps.Values(o.known))...))
}

// lookUp asks for the addresses of all hosts at once, so that none waits for a silent one's.
func (o *own) lookUp(ctx context.Context, hosts []string) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, host := range hosts {
		asking.Go(func() {
			found, err := o.lookup(ctx, host)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				o.known[host] = found
			} else if o.known[host] == nil {
				o.log.WarnContext(ctx, "host of the installation has no address, sandboxes may reach it", "host", host, "error", err)
			}
		})
	}
	asking.Wait()
}
