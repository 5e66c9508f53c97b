package jobs

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

// dropSpools drops in adopted sandboxes the outputs of commands whose end a dead worker has written down, and perhaps
// no more: nobody asks for them again, and their room in the sandbox is bounded.
func (w *Worker) dropSpools(ctx context.Context, adopted []string) {
	ctx, cancel := context.WithTimeout(ctx, kind.DeleteTimeout)
	defer cancel()
	defer w.watches.onQuit(cancel)()
	left, err := w.store.LastExecs(ctx, adopted)
	if err != nil {
		w.log.WarnContext(ctx, "spools of dead workers' commands not removed", "error", err)
		return
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, j := range left {
		all.Go(func() error {
			err := w.dropSpool(ctx, j)
			if err != nil {
				w.spools.add(j.ID, j.SandboxID)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		w.log.WarnContext(ctx, "spools of dead workers' commands not removed", "error", err)
	}
}

func (w *Worker) dropSpool(ctx context.Context, j models.Job) error {
	sb, err := w.provider.Open(ctx, j.SandboxID)
	if err == nil {
		err = sb.Forget(ctx, j.ID)
	}
	switch {
	case isGone(err):
		return nil
	case errors.Is(err, providers.ErrPaused): // later
		w.spools.add(j.ID, j.SandboxID)
		return nil
	case err == nil:
		w.metrics.reconciled.WithLabelValues("spool").Inc()
	}
	return err
}

// isGone says whether there is no such output any more.
func isGone(err error) bool {
	return errors.Is(err, providers.ErrNotFound) || errors.Is(err, providers.ErrLost) ||
		errors.Is(err, providers.ErrNoExec)
}

const (
	// spoolsEvery is the time between tries to drop what could not be dropped at once.
	spoolsEvery = 5 * time.Second
	// maxSpools bounds what a worker remembers; an output beyond that stays until its sandbox ends.
	maxSpools = 10_000
)

// spools are outputs of ended commands that are still in their sandboxes: job → sandbox.
type spools struct {
	mu   sync.Mutex
	left map[string]string
}

func (s *spools) add(job, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil {
		s.left = map[string]string{}
	}
	if len(s.left) < maxSpools {
		s.left[job] = sandbox
	}
}

func (s *spools) remove(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, job)
}

func (s *spools) all() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.left)
}

// forgetSpool drops the output of a command whose end is written down. Where that fails, it is tried again while this
// worker holds the sandbox.
func (w *Worker) forgetSpool(ctx context.Context, j models.Job, sb providers.Sandbox) error {
	err := sb.Forget(ctx, j.ID)
	if err != nil && !isGone(err) {
		w.spools.add(j.ID, j.SandboxID)
	}
	return err
}

// spoolLoop drops what could not be dropped at once.
func (w *Worker) spoolLoop() {
	tick := time.NewTicker(spoolsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
		if err := w.dropSome(); err != nil {
			w.log.Warn("spools of ended commands not removed, trying again", "error", err)
		}
	}
}

func (w *Worker) dropSome() error {
	ctx, cancel := w.living(context.Background(), kind.DeleteTimeout)
	defer cancel()
	return w.dropLeft(ctx)
}

// dropLast is for a worker that stops: nobody else knows what is left. Of a paused sandbox, whoever adopts it finds it
// out.
func (w *Worker) dropLast(ctx context.Context) {
	ctx, cancel := w.finishing(ctx, letGo)
	defer cancel()
	if err := w.dropLeft(ctx); err != nil {
		w.log.WarnContext(ctx, "spools of ended commands not removed", "error", err)
	}
}

func (w *Worker) dropLeft(ctx context.Context) error {
	left := w.spools.all()
	if len(left) == 0 {
		return nil
	}
	boxes, err := w.store.Holding(ctx, w.node, slices.Compact(slices.Sorted(maps.Values(left))))
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
			all.Go(func() error { return w.dropAgain(ctx, models.Job{ID: job, SandboxID: box}) })
		case "": // it has ended, or is another worker's
			w.spools.remove(job)
		}
	}
	return all.Wait()
}

// dropAgain gives one sandbox little of the time that all have.
func (w *Worker) dropAgain(ctx context.Context, j models.Job) error {
	ctx, cancel := context.WithTimeout(ctx, spoolsEvery)
	defer cancel()
	w.spools.remove(j.ID)
	err := w.dropSpool(ctx, j)
	if err != nil {
		w.spools.add(j.ID, j.SandboxID)
	}
	return err
}
