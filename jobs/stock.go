package jobs

import (
	"cmp"
	"context"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// stockEvery is how soon a changed template is seen by the pools. A sandbox is never made from the old one: what waits
// is taken by what a template says when the sandbox is wished for.
const stockEvery = 3 * time.Second

// PoolSizes are how many sandboxes wait of each shared template that does not say, on all workers of an engine
// together.
type PoolSizes struct{ Min, Max int }

// stockLoop keeps the provider's pool at what the templates ask for.
func (w *Worker) stockLoop(ctx context.Context, pool providers.Pooler) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	w.loops.Go(func() {
		<-w.quit
		cancel()
	})
	tick := time.NewTicker(stockEvery)
	defer tick.Stop()
	for {
		if err := w.stock(ctx, pool); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "pool sizes not updated, trying again", "error", err)
		}
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
	}
}

// stock gives the provider this worker's part of the pool: together the workers of an engine hold what one alone would,
// and each no more than its node has room for beside its sandboxes. One that is drained, or whose disk is nearly full,
// has none.
func (w *Worker) stock(ctx context.Context, pool providers.Pooler) error {
	if d := w.disk.Load(); w.draining.Load() || d != nil && d.Low {
		pool.Stock(ctx, nil, providers.AnyRoom())
		return nil
	}
	load, err := w.store.Load(ctx, w.node.ID)
	if err != nil {
		return err
	}
	all, err := w.store.PooledTemplates(ctx)
	if err != nil {
		return err
	}
	rank, workers, err := w.store.Rank(ctx, w.node)
	if err != nil {
		return err
	}
	var classes []providers.PoolClass
	for _, t := range all {
		size := w.poolSize(t)
		if size.Max == 0 || w.offers(t.Definition.Runtime) != nil {
			continue
		}
		if t.TenantID != nil && w.checkAgain(ctx, *t.TenantID, t.Image) != nil {
			continue
		}
		d := t.Definition
		classes = append(classes, providers.PoolClass{
			Spec: providers.Spec{
				Image: t.Image, WorkDir: cmp.Or(d.WorkDir, w.workDir), Runtime: d.Runtime,
				Resources: providers.Resources{
					CPUs: d.Resources.CPUs, MemoryMB: d.Resources.MemoryMB, DiskMB: d.Resources.DiskMB, Pids: d.Resources.Pids,
				},
			},
			Min: part(size.Min, rank, workers), Max: part(size.Max, rank, workers),
		})
	}
	pool.Stock(ctx, classes, roomBeside(w.node, load, workers))
	return nil
}

// roomBeside is a node's part of what is left beside the sandboxes: what waits there never takes more, so it takes
// nothing from them.
func roomBeside(n models.Node, held models.Load, workers int) providers.PoolRoom {
	room := providers.AnyRoom()
	if n.MaxSandboxes > 0 {
		room.Members = max(0, n.MaxSandboxes-held.Sandboxes)
	}
	if n.MaxCPUs > 0 {
		room.CPUs = max(0, n.MaxCPUs-held.CPUs) / float64(workers)
	}
	if n.MaxMemoryMB > 0 {
		room.MemoryMB = max(0, n.MaxMemoryMB-held.MemoryMB) / int64(workers)
	}
	return room
}

func (w *Worker) poolSize(t models.Template) models.PoolSize {
	switch p := t.Definition.Pool; {
	case p != nil:
		return models.PoolSize{Min: p.Min, Max: max(p.Min, p.Max)}
	case t.TenantID == nil:
		return models.PoolSize{Min: w.pool.Min, Max: max(w.pool.Min, w.pool.Max)}
	}
	return models.PoolSize{}
}

// part is the share of n that falls to one of several workers; all shares add up to n.
func part(n, rank, workers int) int {
	if rank < n%workers {
		return n/workers + 1
	}
	return n / workers
}
