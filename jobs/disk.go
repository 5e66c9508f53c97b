package jobs

import (
	"context"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	diskEvery   = 10 * time.Second
	diskTimeout = 5 * time.Second
)

// diskLoop watches what the provider's sandboxes and images lie on. While there is less left than the reserve, the node
// gets no new sandboxes, keeps no pool, and removes the images of old builds; what runs goes on.
func (w *Worker) diskLoop(ctx context.Context, disk providers.DiskReporter, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.lookAtDisk(ctx, disk)
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
	}
}

func (w *Worker) lookAtDisk(ctx context.Context, disk providers.DiskReporter) {
	asking, cancel := w.living(ctx, diskTimeout)
	defer cancel()
	free, err := disk.DiskFree(asking)
	if err != nil {
		w.log.DebugContext(ctx, "free disk space not read", "error", err)
		return
	}
	was := w.disk.Load()
	now := &models.Disk{
		FreeMB: free >> 20,
		Low:    free < w.diskReserve || was != nil && was.Low && free < w.diskReserve+w.diskReserve/4,
	}
	w.disk.Store(now)
	w.metrics.diskFree.Set(float64(free))
	if was != nil && was.Low == now.Low {
		return
	}
	if now.Low {
		w.log.ErrorContext(
			ctx,
			"disk nearly full, this worker takes no new sandboxes",
			"free_mb",
			now.FreeMB,
			"reserve_mb",
			w.diskReserve>>20,
		)
		if builder, ok := w.provider.(providers.Builder); ok {
			w.prune(ctx, builder)
		}
	} else if was != nil {
		w.log.InfoContext(ctx, "disk has free space again, this worker takes new sandboxes", "free_mb", now.FreeMB)
	}
	w.beatNow() // so that it is known where sandboxes are placed
}

// self is the node as it is now.
func (w *Worker) self() models.Node {
	n := w.node
	n.Health = w.health.state()
	if d := w.disk.Load(); d != nil {
		n.Disk = *d
	}
	return n
}
