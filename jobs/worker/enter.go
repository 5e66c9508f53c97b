package worker

import (
	"context"
	"errors"
	"fmt"

	"sandyard/models"
	"sandyard/providers"
)

// ErrElsewhere says that a sandbox is not this node's to open. For whoever asked for it, it is not there.
var ErrElsewhere = fmt.Errorf("%w: another node holds it", providers.ErrNotFound)

// Enter connects to a sandbox that this node may open: one that it holds, or one of its provider that no node has to
// hold. Any other answers ErrElsewhere.
func (w *Worker) Enter(ctx context.Context, id string) (providers.Sandbox, error) {
	ref, err := w.store.Held(ctx, w.node, id)
	if errors.Is(err, models.ErrNotFound) {
		return nil, ErrElsewhere
	}
	if err != nil {
		return nil, err
	}
	w.refer(id, ref)
	return w.provider.Open(ctx, id)
}

// refer tells a provider whose backend has ids of its own which one the sandbox has.
func (w *Worker) refer(id, ref string) {
	if r, ok := w.provider.(providers.Referrer); ok && ref != "" {
		r.Remember(id, ref)
	}
}

// referJob is refer for the sandbox of a job, whose row need not be read for other providers.
func (w *Worker) referJob(ctx context.Context, j models.Job) error {
	if _, ok := w.provider.(providers.Referrer); !ok || j.Kind == models.KindCreate {
		return nil
	}
	ref, err := w.store.Held(ctx, w.node, j.SandboxID)
	if errors.Is(err, models.ErrNotFound) { // it has ended: the job will find out
		return nil
	}
	w.refer(j.SandboxID, ref)
	return err
}
