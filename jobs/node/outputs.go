package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// DropAdopted drops in adopted sandboxes the outputs of commands whose end a dead worker has written down, and perhaps
// no more: nobody asks for them again, and their room in the sandbox is bounded.
func (o *Outputs) DropAdopted(ctx context.Context, adopted []string) {
	ctx, cancel := o.Life.Within(ctx, kind.DeleteTimeout)
	defer cancel()
	left, err := o.Store.LastExecs(ctx, adopted)
	if err != nil {
		o.Log.WarnContext(ctx, "spools of dead workers' commands not removed", "error", err)
		return
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, j := range left {
		all.Go(func() error {
			err := o.drop(ctx, j)
			if err != nil {
				o.add(j.ID, j.SandboxID)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		o.Log.WarnContext(ctx, "spools of dead workers' commands not removed", "error", err)
	}
}

func (o *Outputs) drop(ctx context.Context, j models.Job) error {
	sb, err := o.Provider.Open(ctx, j.SandboxID)
	if err == nil {
		err = sb.Forget(ctx, j.ID)
	}
	switch {
	case providers.IsGone(err):
		return nil
	case errors.Is(err, providers.ErrPaused): // later
		o.add(j.ID, j.SandboxID)
		return nil
	case err == nil:
		o.Metrics.reconciled.WithLabelValues("spool").Inc()
	}
	return err
}

const (
	// spoolsEvery is the time between tries to drop what could not be dropped at once.
	spoolsEvery = 5 * time.Second
	// maxSpools bounds what a worker remembers; an output beyond that stays until its sandbox ends.
	maxSpools = 10_000
)

// Outputs drops the outputs of ended commands that are still in their sandboxes.
type Outputs struct {
	Base
	mu   sync.Mutex
	left map[string]string // job → sandbox
}

// NewOutputs makes an Outputs that knows of none.
func NewOutputs(b Base) *Outputs { return &Outputs{Base: b, left: map[string]string{}} }

func (o *Outputs) add(jobID, sandboxID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.left) < maxSpools {
		o.left[jobID] = sandboxID
	}
}

func (o *Outputs) remove(jobID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.left, jobID)
}

func (o *Outputs) all() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.left)
}

// Forget drops the output of a command whose end is written down. Where that fails, it is tried again while this worker
// holds the sandbox.
func (o *Outputs) Forget(ctx context.Context, j models.Job, sb providers.Sandbox) error {
	err := sb.Forget(ctx, j.ID)
	if err != nil && !providers.IsGone(err) {
		o.add(j.ID, j.SandboxID)
	}
	return err
}

// Run drops what could not be dropped at once, until the life ends.
func (o *Outputs) Run(ctx context.Context) {
	o.Life.Every(spoolsEvery, nil, func() {
		ctx, cancel := o.Life.Within(ctx, kind.DeleteTimeout)
		defer cancel()
		if err := o.dropLeft(ctx); err != nil {
			o.Log.WarnContext(ctx, "spools of ended commands not removed, trying again", "error", err)
		}
	})
}

// DropLast is for a worker that stops: nobody else knows what is left. Of a paused sandbox, whoever adopts it finds it
// out.
func (o *Outputs) DropLast(ctx context.Context, limit time.Duration) {
	ctx, cancel := o.Patience.Within(ctx, limit)
	defer cancel()
	if err := o.dropLeft(ctx); err != nil {
		o.Log.WarnContext(ctx, "spools of ended commands not removed", "error", err)
	}
}

func (o *Outputs) dropLeft(ctx context.Context) error {
	left := o.all()
	if len(left) == 0 {
		return nil
	}
	boxes, err := o.Store.Holding(ctx, o.Node, slices.Compact(slices.Sorted(maps.Values(left))))
	if err != nil {
		return err
	}
	state := map[string]models.SandboxState{}
	for _, b := range boxes {
		state[b.ID] = b.State
	}
	var all errgroup.Group
	all.SetLimit(8)
	for job, box := range left {
		switch state[box] {
		case models.SandboxRunning:
			all.Go(func() error { return o.dropAgain(ctx, models.Job{ID: job, SandboxID: box}) })
		case "": // it has ended, or is another worker's
			o.remove(job)
		}
	}
	return all.Wait()
}

// dropAgain gives one sandbox little of the time that all have.
func (o *Outputs) dropAgain(ctx context.Context, j models.Job) error {
	ctx, cancel := context.WithTimeout(ctx, spoolsEvery)
	defer cancel()
	o.remove(j.ID)
	err := o.drop(ctx, j)
	if err != nil {
		o.add(j.ID, j.SandboxID)
	}
	return err
}
