package jobs

import (
	"context"
	"time"

	"sandyard/models"
)

// beatLoop keeps the node's lease and those of its jobs alive, three times a lease, and adopts what dead nodes of the
// same engine held.
func (w *Worker) beatLoop() {
	tick := time.NewTicker(w.lease / 3)
	defer tick.Stop()
	good := time.Now()
	for {
		if began := time.Now(); w.beat() {
			good = began
		} else if time.Since(good) > w.lease {
			w.each(func(a *attempt) { a.abandon(errFenced) }) // others may own them by now
		}
		select {
		case <-tick.C:
		case <-w.kick:
		case <-w.quit:
			return
		}
	}
}

func (w *Worker) beat() bool {
	ctx, cancel := context.WithTimeout(context.Background(), w.lease/3)
	defer cancel()
	held := map[models.Held]*attempt{}
	w.each(func(a *attempt) { held[a.held()] = a })
	beats, err := w.store.Heartbeat(ctx, w.node, keys(held), w.lease)
	if err != nil {
		w.log.WarnContext(ctx, "heartbeat failed", "error", err)
		return false
	}
	for _, b := range beats {
		h := models.Held{ID: b.ID, Attempt: b.Attempt}
		if b.Cancel {
			held[h].requestCancel()
		}
		delete(held, h)
	}
	for _, a := range held {
		a.fence()
	}
	w.adopt(ctx)
	return true
}

func (w *Worker) adopt(ctx context.Context) {
	ids, tasks, err := w.store.Adopt(ctx, w.node)
	if err != nil {
		w.log.WarnContext(ctx, "adoption failed", "error", err)
		return
	}
	for _, id := range ids {
		w.log.InfoContext(ctx, "sandbox adopted from a dead node", "sandbox_id", id)
	}
	w.queue.send(ctx, tasks)
	if len(ids) > 0 {
		w.tendNetworks()
	}
}

func keys(m map[models.Held]*attempt) []models.Held {
	out := make([]models.Held, 0, len(m))
	for h := range m {
		out = append(out, h)
	}
	return out
}
