package node

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

// Pool keeps the provider's pool at what the templates ask for.
type Pool struct {
	Base
	Sizes   PoolSizes
	WorkDir string // of sandboxes whose template names none; empty = the provider's
	// Offers says whether sandboxes of the template may be made here.
	Offers func(context.Context, models.Template) bool
	// Closed says whether the node makes no sandboxes.
	Closed func() bool
}

// Run looks after the pool until the life ends, if the provider has one.
func (p *Pool) Run(ctx context.Context) {
	pool, ok := p.Provider.(providers.Pooler)
	if !ok {
		return
	}
	ctx, cancel := p.Life.Context(ctx)
	defer cancel()
	look := func() {
		if err := p.stock(ctx, pool); err != nil && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "pool sizes not updated, trying again", "error", err)
		}
	}
	look()
	p.Life.Every(stockEvery, nil, look)
}

// stock gives the provider this worker's part of the pool: together the workers of an engine hold what one alone would,
// and each no more than its node has room for beside its sandboxes. One that is drained, or whose disk is nearly full,
// has none.
func (p *Pool) stock(ctx context.Context, pool providers.Pooler) error {
	if p.Closed() {
		pool.Stock(ctx, nil, providers.AnyRoom())
		return nil
	}
	load, err := p.Store.Load(ctx, p.Node.ID)
	if err != nil {
		return err
	}
	all, err := p.Store.PooledTemplates(ctx)
	if err != nil {
		return err
	}
	rank, workers, err := p.Store.Rank(ctx, p.Node)
	if err != nil {
		return err
	}
	var classes []providers.PoolClass
	for _, t := range all {
		size := p.size(t)
		if size.Max == 0 || !p.Offers(ctx, t) {
			continue
		}
		d := t.Definition
		classes = append(classes, providers.PoolClass{
			Spec: providers.Spec{
				Image: t.Image, WorkDir: cmp.Or(d.WorkDir, p.WorkDir), Runtime: d.Runtime,
				Resources: providers.Resources(d.Resources),
			},
			Min: part(size.Min, rank, workers), Max: part(size.Max, rank, workers),
		})
	}
	pool.Stock(ctx, classes, roomBeside(p.Node, load, workers))
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

func (p *Pool) size(t models.Template) models.PoolSize {
	switch own := t.Definition.Pool; {
	case own != nil:
		return models.PoolSize{Min: own.Min, Max: max(own.Min, own.Max)}
	case t.TenantID == nil:
		return models.PoolSize{Min: p.Sizes.Min, Max: max(p.Sizes.Min, p.Sizes.Max)}
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
