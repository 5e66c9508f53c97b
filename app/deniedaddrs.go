package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sandyard/netguard"
)

const (
	// ownEvery is how often it is asked anew where the installation's own hosts are.
	ownEvery = time.Minute
	// ownPatience is how long one look may take. A start waits for the first.
	ownPatience = 5 * time.Second
)

// own finds the addresses of what the installation stands on, so that no stranger reaches them, wherever they are:
// PostgreSQL, Redis, the engine and the workers' gateways. A host of which nothing is heard now keeps the addresses it
// had.
type own struct {
	services []service // by configuration
	gateways func(context.Context) ([]service, error)
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	found    *netguard.Services
	log      *slog.Logger

	known  map[string][]netip.Addr // by host
	before []netip.AddrPort        // found by the last look that saw all workers
}

// service is where something listens.
type service struct {
	host string
	port uint16
}

func newOwn(c Worker, gateway string, p *Parts, found *netguard.Services, log *slog.Logger) (*own, error) {
	services, err := c.ownServices(gateway)
	if err != nil {
		return nil, err
	}
	return &own{
		services: services, found: found, log: log, known: map[string][]netip.Addr{},
		gateways: func(ctx context.Context) ([]service, error) { return gateways(ctx, p) },
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}, nil
}

// ownServices are those that the configuration names, with this worker's gateway. Sockets have no host.
func (c Worker) ownServices(gateway string) ([]service, error) {
	database, err := pgconn.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	services := []service{{database.Host, database.Port}}
	for _, other := range database.Fallbacks {
		services = append(services, service{other.Host, other.Port})
	}
	for _, text := range []string{c.redisURL(), c.DockerHost, gateway} {
		services = append(services, serviceOf(text))
	}
	services = slices.DeleteFunc(services, func(s service) bool { return s.host == "" || filepath.IsAbs(s.host) })
	slices.SortFunc(services, func(a, b service) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	})
	return slices.Compact(services), nil
}

// usualPorts are those of URLs that name none.
func usualPorts() map[string]uint16 {
	return map[string]uint16{"redis": 6379, "rediss": 6379, "tcp": 2375, "http": 80, "https": 443}
}

// serviceOf reads a URL; of a socket's it is the zero value.
func serviceOf(text string) service {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "unix" {
		return service{}
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return service{u.Hostname(), usualPorts()[u.Scheme]}
	}
	return service{u.Hostname(), uint16(port)}
}

// gateways are those of the workers in the node table.
func gateways(ctx context.Context, p *Parts) ([]service, error) {
	nodes, err := p.Store.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the nodes: %w", err)
	}
	var all []service
	for _, n := range nodes {
		if s := serviceOf(n.Gateway); s.host != "" {
			all = append(all, s)
		}
	}
	return all, nil
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
		o.log.WarnContext(ctx, "worker addresses not read, egress may reach new workers", "error", err)
	}
	wanted := append(gateways, o.services...)
	hosts := map[string]bool{}
	for _, s := range wanted {
		hosts[s.host] = true
	}
	o.lookUp(ctx, slices.Collect(maps.Keys(hosts)))
	if err != nil {
		o.found.Set(append(o.addresses(wanted), o.before...)) // what is not read now may still be there
		return
	}
	maps.DeleteFunc(o.known, func(host string, _ []netip.Addr) bool { return !hosts[host] })
	o.before = o.addresses(wanted)
	o.found.Set(o.before)
}

func (o *own) addresses(services []service) []netip.AddrPort {
	var all []netip.AddrPort
	for _, s := range services {
		for _, ip := range o.known[s.host] {
			all = append(all, netip.AddrPortFrom(ip, s.port))
		}
	}
	return all
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
				o.log.WarnContext(ctx, "host of the installation not resolved, egress may reach it", "host", host, "error", err)
			}
		})
	}
	asking.Wait()
}
