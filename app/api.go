package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers/catalog"
	"sandyard/web"
	"sandyard/web/edge"
	"sandyard/web/middleware"
)

// httpGrace is how long requests under way may take to end.
const httpGrace = 10 * time.Second

// RunAPI runs an API process until ctx ends. The first one on a new database makes the first key.
func RunAPI(ctx context.Context, c API, log *slog.Logger) error {
	p, err := Connect(ctx, c.Common, log)
	if err != nil {
		return err
	}
	defer p.Close(log)
	if err := firstKey(ctx, c, p.Store, os.Stdout, log); err != nil {
		return fmt.Errorf("make the first key: %w", err)
	}
	c.limitMemory()
	doors, err := c.listen()
	if err != nil {
		return err
	}
	return ServeAPI(ctx, c, p, doors, NewRegistry(), log)
}

// memoryBase is what an API process takes beside the bodies and answers of its requests, at most, with thousands of
// connections.
const memoryBase = 96 << 20

// limitMemory makes the garbage collector work harder before the process outgrows its budget, unless GOMEMLIMIT says
// something else.
func (c API) limitMemory() {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(middleware.BodyMemory(c.BodyMemory, c.MaxBody)) + memoryBase)
	}
}

// Doors are the listeners of an API process.
type Doors struct {
	API  net.Listener
	Edge net.Listener // nil = there is none
	// Keyless is where clients of the sandbox server need no key; nil = there is none.
	Keyless net.Listener
}

func (c API) listen() (d Doors, err error) {
	if d.API, err = net.Listen("tcp", c.Addr); err != nil {
		return d, fmt.Errorf("listen: %w", err)
	}
	if c.Edge != "" {
		if d.Edge, err = net.Listen("tcp", c.Edge); err != nil {
			return d, errors.Join(fmt.Errorf("listen for the edge: %w", err), d.close())
		}
	}
	if c.Keyless != "" {
		if d.Keyless, err = net.Listen("tcp", c.Keyless); err != nil {
			return d, errors.Join(fmt.Errorf("listen for clients without a key: %w", err), d.close())
		}
	}
	return d, nil
}

// NewRegistry returns the metrics of a process, with those of its runtime.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// ServeAPI answers at the doors until ctx ends.
func ServeAPI(ctx context.Context, c API, p *Parts, doors Doors, reg *prometheus.Registry, log *slog.Logger) error {
	signer, err := p.signer(ctx, log)
	if err != nil {
		return errors.Join(err, doors.close())
	}
	if err := c.checkKeyless(ctx, p, log); err != nil {
		return errors.Join(err, doors.close())
	}
	declared := c.catalog().Declared()
	declare := func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Store.Declare(ctx, declared) }
	if _, err := ask(ctx, log, declare); err != nil {
		return errors.Join(fmt.Errorf("declare the templates: %w", err), doors.close())
	}
	reg.MustRegister(jobs.NewLoadCollector(p.Store, jobs.LoadLife), p.Queue.Metrics())
	waiters := queue.NewWaiters(ctx, p.Store, p.rdb)
	offer := c.catalog()
	offer.Callbacks = c.rules()
	if doors.Edge != nil {
		offer.Edge = c.edge()
	}
	client := jobs.NewClient(p.Store, p.Queue, offer, log)
	way := edge.New(edge.Config{
		Store: p.Store, Signer: signer, Resume: client.Resume, Domain: c.Domain, Secure: c.edge().Scheme == "https", Log: log,
	})
	keys, err := c.vault()
	if err != nil {
		return errors.Join(err, doors.close(), waiters.Close())
	}
	if err := p.countSecurity(reg); err != nil {
		return errors.Join(err, doors.close(), waiters.Close())
	}
	srv, err := web.New(web.Config{ //nolint:contextcheck // its handlers take their request's context
		Store:         p.Store,
		Jobs:          client,
		Secrets:       secrets.New(p.Store, keys),
		Waiters:       waiters,
		Queue:         p.Queue,
		Security:      p.security,
		Redis:         p.redis,
		Metrics:       reg,
		PublicMetrics: c.PublicMetrics,
		Capabilities:  catalog.Capabilities(),
		MaxBody:       c.MaxBody,
		BodyMemory:    c.BodyMemory,
		TenantWaits:   c.TenantWaits,
		TenantStreams: c.TenantStreams,
		Version:       Version,
		Signer:        signer,
		Address:       c.edge(),
		NoInternet:    !c.Internet,
		Inside:        way,
		Log:           log,
		Calls: web.Calls{
			Timeout:    seconds(c.Timeout),
			MaxTimeout: seconds(c.MaxTimeout),
			MCPPort:    c.MCPPort,
			VSCodePort: c.VSCodePort,
			OpenTenant: c.KeylessTenant,
		},
	})
	if err != nil {
		return errors.Join(err, doors.close(), waiters.Close())
	}
	return errors.Join(c.serve(ctx, doors, srv, way, log), waiters.Close())
}

// serve answers at all doors until ctx ends or one of them cannot.
func (c API) serve(ctx context.Context, doors Doors, srv *web.Server, way *edge.Edge, log *slog.Logger) (err error) {
	ended := make(chan error, 3)
	stopEdge := doors.serveEdge(ctx, way, log, ended)
	log.InfoContext(ctx, "API listens", "addr", doors.API.Addr().String())
	go func() { ended <- srv.Listen(doors.API) }()
	if doors.Keyless != nil {
		log.WarnContext(ctx, "clients without an API key are served",
			"addr", doors.Keyless.Addr().String(), "tenant", c.KeylessTenant)
		go func() { ended <- srv.ListenOpen(doors.Keyless) }()
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGrace)
	defer cancel()
	stopEdge()
	defer way.Close()
	return errors.Join(err, srv.Shutdown(grace))
}

// checkKeyless refuses to serve clients without a key for a tenant that is not there.
func (c API) checkKeyless(ctx context.Context, p *Parts, log *slog.Logger) error {
	if c.KeylessTenant == "" {
		return nil
	}
	_, err := ask(
		ctx,
		log,
		func(ctx context.Context) (models.Tenant, error) { return p.Store.Tenant(ctx, c.KeylessTenant) },
	)
	if errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("SANDBOX_SERVER_TENANT is %q, and there is no tenant with this id", c.KeylessTenant)
	}
	return err
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func (d Doors) close() error {
	err := d.API.Close()
	for _, l := range []net.Listener{d.Edge, d.Keyless} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// serveEdge passes traffic on until stop is called. An end that nobody asked for is told.
func (d Doors) serveEdge(ctx context.Context, way *edge.Edge, log *slog.Logger, ended chan<- error) (stop func()) {
	if d.Edge != nil {
		log.InfoContext(ctx, "edge listens", "addr", d.Edge.Addr().String())
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := way.Serve(ctx, d.Edge); err != nil {
			ended <- fmt.Errorf("edge: %w", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}
