package node

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	usualDiskEvery = 10 * time.Second
	diskTimeout    = 5 * time.Second
)

// Disk watches what the provider's sandboxes and images lie on. While there is less left than the reserve, the node
// gets no new sandboxes, keeps no pool, and removes the images of old builds; what runs goes on.
type Disk struct {
	Base
	reserve int64 // bytes; 0 = it does not look
	every   time.Duration
	changed func()                      // is told when the node is low on space, and when it is not any more
	last    atomic.Pointer[models.Disk] // nil = not known
}

// NewDisk makes a watch that looks so often; 0 = every ten seconds.
func NewDisk(b Base, reserve int64, every time.Duration, changed func()) *Disk {
	return &Disk{Base: b, reserve: reserve, every: cmp.Or(every, usualDiskEvery), changed: changed}
}

// State is what the last look has found; nil = nothing yet.
func (d *Disk) State() *models.Disk { return d.last.Load() }

// Low says whether the node is to make no more sandboxes.
func (d *Disk) Low() bool {
	last := d.last.Load()
	return last != nil && last.Low
}

// Run looks until the life ends, if the provider knows its disk.
func (d *Disk) Run(ctx context.Context) {
	reporter, ok := d.Provider.(providers.DiskReporter)
	if !ok || d.reserve <= 0 {
		return
	}
	d.look(ctx, reporter)
	d.Life.Every(d.every, nil, func() { d.look(ctx, reporter) })
}

func (d *Disk) look(ctx context.Context, reporter providers.DiskReporter) {
	asking, cancel := d.Life.Within(ctx, diskTimeout)
	defer cancel()
	free, err := reporter.DiskFree(asking)
	if err != nil {
		d.Log.DebugContext(ctx, "free disk space not read", "error", err)
		return
	}
	was := d.last.Load()
	now := &models.Disk{
		FreeMB: free >> 20,
		Low:    free < d.reserve || was != nil && was.Low && free < d.reserve+d.reserve/4,
	}
	d.last.Store(now)
	d.Metrics.diskFree.Set(float64(free))
	if was != nil && was.Low == now.Low {
		return
	}
	if now.Low {
		d.Log.ErrorContext(
			ctx,
			"disk nearly full, this worker takes no new sandboxes",
			"free_mb",
			now.FreeMB,
			"reserve_mb",
			d.reserve>>20,
		)
		NewImages(d.Base).prune(ctx)
	} else if was != nil {
		d.Log.InfoContext(ctx, "disk has free space again, this worker takes new sandboxes", "free_mb", now.FreeMB)
	}
	d.changed()
}
