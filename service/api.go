package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sandyard/jobs"
	"sandyard/providers/catalog"
	"sandyard/web"
)

// httpGrace is how long requests under way may take to end.
const httpGrace = 10 * time.Second

// RunAPI runs an API process until ctx ends. The first one on a new database prints the first key.
func RunAPI(ctx context.Context, c API, log *slog.Logger) error {
	p, err := Connect(ctx, c.Common, log)
	if err != nil {
		return err
	}
	defer p.Close(log)
	if key, err := p.Store.Bootstrap(ctx); err != nil {
		return fmt.Errorf("make the first key: %w", err)
	} else if key != "" {
		fmt.Fprintln(os.Stdout, "First API key, shown only now:", key)
	}
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return ServeAPI(ctx, c, p, l, NewRegistry(), log)
}

// NewRegistry returns the metrics of a process, with those of its runtime.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// ServeAPI answers at l until ctx ends.
func ServeAPI(ctx context.Context, c API, p *Parts, l net.Listener, reg *prometheus.Registry, log *slog.Logger) error {
	reg.MustRegister(jobs.NewLoadCollector(p.Store))
	waiters := jobs.NewWaiters(ctx, p.Store, p.rdb)
	srv, err := web.New(web.Config{ //nolint:contextcheck // its handlers take their request's context
		Store: p.Store, Jobs: jobs.NewClient(p.Store, p.Queue, c.catalog(), log), Waiters: waiters, Queue: p.Queue,
		Redis: p.redis, Metrics: reg, PublicMetrics: c.PublicMetrics, Capabilities: catalog.Capabilities(),
		MaxBody: c.MaxBody, Version: Version, Log: log,
	})
	if err != nil {
		return errors.Join(err, l.Close(), waiters.Close())
	}
	log.InfoContext(ctx, "API listens", "addr", l.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- srv.Listen(l) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGrace)
	defer cancel()
	return errors.Join(err, srv.Shutdown(grace), waiters.Close())
}
