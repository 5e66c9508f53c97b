package jobs

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"sandyard/models"
	"sandyard/providers"
)

// dropSpools drops in adopted sandboxes the outputs of commands whose end a dead worker has written down, and perhaps no
// more: nobody asks for them again, and their room in the sandbox is bounded.
func (w *Worker) dropSpools(ctx context.Context, adopted []string) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	defer w.watches.onQuit(cancel)()
	left, err := w.store.LastExecs(ctx, adopted)
	if err != nil {
		w.log.WarnContext(ctx, "outputs of dead workers' commands are left in their sandboxes", "error", err)
		return
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, j := range left {
		all.Go(func() error { return w.dropSpool(ctx, j) })
	}
	if err := all.Wait(); err != nil {
		w.log.WarnContext(ctx, "outputs of dead workers' commands are left in their sandboxes", "error", err)
	}
}

func (w *Worker) dropSpool(ctx context.Context, j models.Job) error {
	sb, err := w.provider.Open(ctx, j.SandboxID)
	if err == nil {
		err = sb.Forget(ctx, j.ID)
	}
	for _, fine := range []error{providers.ErrNotFound, providers.ErrLost, providers.ErrPaused, providers.ErrNoExec} {
		if errors.Is(err, fine) {
			return nil
		}
	}
	if err == nil {
		w.metrics.reconciled.WithLabelValues("spool").Inc()
	}
	return err
}
