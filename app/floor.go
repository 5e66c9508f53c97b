package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sandyard/egress"
	"sandyard/jobs/node"
	"sandyard/jobs/secrets"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/providers"
)

// floor is a worker process: one worker for each of its providers, each with a node, slots, queues and a breaker of its
// own.
type floor struct {
	Worker
	parts   *Parts
	reg     prometheus.Registerer
	outside *egress.Server
	hooks   *webhook.Sender
	secrets *secrets.Keeper
	gateway string
	log     *slog.Logger

	mu      sync.RWMutex
	workers []*worker.Worker // that run
	left    []func()         // close the providers of those that have stopped with the process
}

// reopen is the time between two tries to open a provider while others of the process work.
const reopen = 15 * time.Second

// run works with every provider until ctx ends or all nodes leave. One that cannot be opened ends the process if it is
// the only one, or if waiting does not help; else the others work meanwhile.
func (f *floor) run(ctx context.Context) error {
	names := f.providers()
	all, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		all.Go(func() error {
			log := f.log.With("provider", name)
			for {
				err := f.work(ctx, name, log)
				if err == nil || ctx.Err() != nil {
					return nil
				}
				if len(names) == 1 || notAway(err) {
					return err
				}
				log.ErrorContext(ctx, "provider not opened, trying again; the others work", "error", err, "in", reopen)
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(reopen):
				}
			}
		})
	}
	return all.Wait()
}

// work opens one provider and takes its jobs until ctx ends or its node leaves.
func (f *floor) work(ctx context.Context, name string, log *slog.Logger) error {
	backend, err := await(ctx, log, "provider "+name, notAway, func(ctx context.Context) (providers.Provider, error) {
		return f.open(ctx, name, log)
	})
	if err != nil {
		return err
	}
	defer f.leave(ctx, backend, log)
	engine, err := await(ctx, log, "provider "+name, notAway, func(ctx context.Context) (string, error) {
		return engineOf(ctx, backend)
	})
	if err != nil {
		return err
	}
	room, err := await(ctx, log, "provider "+name, notAway, func(ctx context.Context) (worker.Room, error) {
		return f.openRoom(ctx, backend, log)
	})
	if err != nil {
		return err
	}
	ensureImages(ctx, backend, f.Worker, log)
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"provider": name}, f.reg)
	countPool(reg, backend)
	w := worker.New(worker.Config{ //nolint:contextcheck // its life is from Start to Stop
		Store:          f.parts.Store,
		Redis:          f.parts.redis,
		Secrets:        f.secrets,
		Provider:       backend,
		Engine:         engine,
		Name:           f.Name,
		Slots:          f.Slots,
		CreateRate:     f.CreateRates[name],
		Room:           room,
		DiskReserve:    int64(f.DiskReserve) << 20,
		Pool:           node.PoolSizes{Min: f.PoolSize, Max: f.PoolMax},
		WorkDir:        f.WorkDir,
		Security:       f.parts.security,
		Runtimes:       f.offered(),
		Images:         f.Images,
		Builds:         f.Builds,
		Gateway:        f.gateway,
		Egress:         f.outside,
		Lease:          f.Lease,
		Grace:          f.Grace,
		Reconcile:      f.Reconcile,
		ReconcileGrace: f.Patience,
		Webhooks:       f.hooks,
		Metrics:        worker.NewMetrics(reg),
		Log:            f.log,
	})
	f.add(w)
	defer f.remove(w)
	if _, err := ask(
		ctx,
		log,
		func(ctx context.Context) (struct{}, error) { return struct{}{}, w.Start(ctx) },
	); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-w.Leaving():
		log.InfoContext(ctx, "operator requested that this worker leave")
	}
	w.Stop(context.WithoutCancel(ctx))
	return nil
}

// leave closes a provider. Where the process stops, too, that waits for closeAll: whoever is connected to a sandbox is
// to hear that the worker stops, not that its connection broke.
func (f *floor) leave(ctx context.Context, backend providers.Provider, log *slog.Logger) {
	shut := func() {
		if err := backend.Close(); err != nil {
			log.Warn("close provider", "error", err)
		}
	}
	if ctx.Err() == nil && len(f.providers()) > 1 {
		shut()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, shut)
}

// closeAll closes the providers that were left open when the process stopped.
func (f *floor) closeAll() {
	for _, shut := range f.left {
		shut()
	}
}

func (f *floor) add(w *worker.Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers = append(f.workers, w)
}

func (f *floor) remove(w *worker.Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*worker.Worker
	for _, other := range f.workers {
		if other != w {
			left = append(left, other)
		}
	}
	f.workers = left
}

// enter connects to a sandbox that one of the process's nodes may open.
func (f *floor) enter(ctx context.Context, sandboxID string) (providers.Sandbox, error) {
	f.mu.RLock()
	workers := f.workers
	f.mu.RUnlock()
	for _, w := range workers {
		box, err := w.Enter(ctx, sandboxID)
		if !errors.Is(err, worker.ErrElsewhere) {
			return box, err
		}
	}
	return nil, fmt.Errorf("%w: no node of this worker holds it", providers.ErrNotFound)
}
