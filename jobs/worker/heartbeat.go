package worker

import (
	"context"
	"time"

	"sandyard/models"
)

// beatLoop keeps the node's lease and those of its jobs alive, three times a lease, and adopts what dead nodes of the
// same engine held.
func (w *Worker) beatLoop() {
	good := time.Now()
	beat := func() {
		if began := time.Now(); w.beat() {
			good = began
		} else if time.Since(good) > w.lease {
			w.each(func(a *attempt) { a.abandon(errFenced) }) // others may own them by now
		}
	}
	beat()
	w.life.Every(w.lease/3, w.kick, beat)
}

// self is the node as it is now.
func (w *Worker) self() models.Node {
	n := w.node
	n.Health = w.health.State()
	if d := w.disk.State(); d != nil {
		n.Disk = *d
	}
	return n
}

func (w *Worker) beat() bool {
	ctx, cancel := w.life.Within(context.Background(), w.lease/3)
	defer cancel()
	held := map[models.AttemptRef]*attempt{}
	w.each(func(a *attempt) { held[a.held()] = a })
	wanted, beats, err := w.store.Heartbeat(ctx, w.self(), keys(held), w.lease)
	if err != nil {
		w.log.WarnContext(ctx, "heartbeat failed", "error", err)
		return false
	}
	w.applyOrders(ctx, wanted)
	for _, b := range beats {
		h := models.AttemptRef{ID: b.ID, Attempt: b.Attempt}
		if b.Cancel {
			held[h].requestCancel()
		}
		delete(held, h)
	}
	for _, a := range held {
		a.fence()
	}
	if w.mayAdopt(ctx, wanted) {
		w.adopt(ctx, wanted.Steady)
	}
	return true
}

// applyOrders carries out what operators want of this node. That it takes no new sandboxes is seen where they are
// placed.
func (w *Worker) applyOrders(ctx context.Context, wanted models.NodeOrders) {
	if w.draining.Swap(wanted.Draining) != wanted.Draining {
		w.log.InfoContext(ctx, "drain state changed by an operator", "draining", wanted.Draining, "leaving", wanted.Leaving)
	}
	if wanted.Leaving {
		w.leave.Do(func() { close(w.stopRequested) })
	}
}

// mayAdopt leaves the sandboxes of dead nodes to others, if there are any, while this one is drained.
func (w *Worker) mayAdopt(ctx context.Context, wanted models.NodeOrders) bool {
	if !wanted.Draining {
		return true
	}
	_, nodes, err := w.store.Rank(ctx, w.node)
	return err == nil && nodes == 1 && !wanted.Leaving
}

// Leaving is closed when an operator wants the worker to stop.
func (w *Worker) Leaving() <-chan struct{} { return w.stopRequested }

// adopt takes over what dead nodes held; while the worker is not steady, of those alone that have said farewell.
func (w *Worker) adopt(ctx context.Context, steady bool) {
	ids, tasks, err := w.store.Adopt(ctx, w.node, steady)
	if err != nil {
		w.log.WarnContext(ctx, "sandboxes of dead nodes not adopted", "error", err)
		return
	}
	for _, id := range ids {
		w.log.InfoContext(ctx, "sandbox adopted from a dead node", "sandbox_id", id)
	}
	w.queue.Send(ctx, tasks)
	if len(ids) > 0 {
		w.networks.Tend()
		w.loops.Go(func() { w.outputs.DropAdopted(context.WithoutCancel(ctx), ids) })
	}
}

func keys(m map[models.AttemptRef]*attempt) []models.AttemptRef {
	out := make([]models.AttemptRef, 0, len(m))
	for h := range m {
		out = append(out, h)
	}
	return out
}
