package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"sandyard/models"
)

// Stop takes no new jobs, gives the running ones most of the grace, hands the others to whoever comes next within the
// rest of it, and lets go of the node's sandboxes. Commands go on running in them.
func (w *Worker) Stop(ctx context.Context) {
	w.stopped.Do(func() { w.stop(ctx) })
}

func (w *Worker) stop(ctx context.Context) {
	began := time.Now()
	defer w.waits.End()
	for _, s := range w.servers {
		s.Quiet()
	}
	w.each(func(a *attempt) {
		if a.job.Kind == models.KindExecWait { // nobody is helped by the grace
			a.abandon(errShutdown)
		}
	})
	w.drain()
	defer time.AfterFunc(stopTimeout, w.waits.End).Stop()
	var servers sync.WaitGroup
	for _, s := range w.servers {
		servers.Go(s.Stop)
	}
	servers.Wait()
	w.outputs.DropLast(ctx, detachGrace)
	w.life.End()
	w.loops.Wait()
	w.queue.Close()
	ctx, cancel := context.WithTimeout(
		context.WithoutCancel(ctx),
		min(stopTimeout, max(time.Second, w.grace-time.Since(began))),
	)
	defer cancel()
	if err := w.store.Retire(ctx, w.node.ID); err != nil {
		w.log.WarnContext(ctx, "node not retired, its lease expires by itself", "error", err)
	}
	if err := errors.Join(w.queue.ForgetNode(ctx, w.node.ID), w.rdb.Close()); err != nil {
		w.log.WarnContext(ctx, "queue not removed", "error", err)
	}
	w.log.InfoContext(ctx, "worker stopped")
}

const (
	// stopTimeout is how long a worker that stops waits, after its jobs' time, for an engine, a database or a Redis that
	// does not answer: for the jobs to let go, for the loops to end, and for its own farewell. What it leaves undone
	// others find.
	stopTimeout = 3 * time.Second
	// detachGrace is how much longer than those calls the jobs may take.
	detachGrace = time.Second
	// handoverReserve is the end of a grace, in which what still runs is handed over, and the process ends.
	handoverReserve = 5 * time.Second
)

// jobsTime is how much of the grace running jobs have. Of a short one they have most.
func (w *Worker) jobsTime() time.Duration { return w.grace - min(handoverReserve, w.grace/4) }

// drain starts nothing more, waits for the running jobs, and when their time is over makes them detach.
func (w *Worker) drain() {
	deadline := time.NewTimer(w.jobsTime())
	defer deadline.Stop()
	var idle []<-chan struct{}
	for _, lane := range w.lanes {
		idle = append(idle, lane.Close())
	}
	handsOver := false
	for len(idle) > 0 {
		select {
		case <-idle[0]:
			idle = idle[1:]
		case <-deadline.C:
			if handsOver {
				w.log.Warn("jobs did not stop in time, other workers recover them")
				return
			}
			handsOver = true
			w.handOver()
			defer time.AfterFunc(stopTimeout, w.waits.End).Stop()
			deadline.Reset(stopTimeout + detachGrace)
		}
	}
}

// handOver makes all attempts let go of their jobs, also those that are about to begin.
func (w *Worker) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handsOver = true
	for _, a := range w.held {
		a.abandon(errShutdown)
	}
}
