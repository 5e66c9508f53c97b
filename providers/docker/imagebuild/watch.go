package imagebuild

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sandyard/providers"
)

const (
	// sizeEvery is the time between looks at what a build has written; where one takes long, there are fewer.
	sizeEvery = 2 * time.Second
	// diskEvery is the time between looks at what is left of the engine's disk, which costs next to nothing: a build can
	// write some hundred megabytes meanwhile.
	diskEvery = 100 * time.Millisecond
	// lowLooks is how many in a row must have found too little.
	lowLooks = 2
	// buildReserve is how many times the reserve builds leave free: a node whose disk has less than the reserve takes no
	// sandboxes, and that is not in the hands of a build.
	buildReserve = 2
	// leastInodes is the part of the disk's inodes that builds leave free, as one in so many.
	leastInodes = 100
)

// watches are the builds under way.
type watches struct {
	mu  sync.Mutex
	all map[*Watch]struct{}
}

// Watch ends a build that writes more than it may, or takes the last of the engine's disk.
type Watch struct {
	layer   layer
	limitMB int64
	end     context.CancelCauseFunc
	used    atomic.Int64 // bytes, as seen last
}

// begin adds a build; the returned function takes it away.
func (w *watches) begin(b *Watch) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*Watch]struct{}{}
	}
	w.all[b] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, b)
	}
}

// largest says whether no other build has written more.
func (w *watches) largest(b *Watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.all {
		if other != b && other.used.Load() > b.used.Load() {
			return false
		}
	}
	return true
}

// watch watches until ctx ends.
func (b *Builder) watch(ctx context.Context, w *Watch) {
	var looks sync.WaitGroup
	defer looks.Wait()
	looks.Go(func() { b.watchDisk(ctx, w) })
	wait := sizeEvery
	for w.limitMB > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if err := w.look(ctx); err != nil {
			w.end(err)
			return
		}
		wait = max(sizeEvery, 5*time.Since(began))
	}
}

// look measures the build. Its error is why it must end.
func (w *Watch) look(ctx context.Context) error {
	limit := w.limitMB << 20
	used, err := w.layer.written(ctx, limit)
	w.used.Store(used)
	switch {
	case errors.Is(err, errTooDeep):
		return providers.BuildFailed.Errorf("the build nests directories deeper than %d levels", deepest)
	case err == nil && used > limit:
		return tooLarge(w.limitMB)
	}
	return nil // what cannot be measured now can be later
}

func tooLarge(limitMB int64) error {
	return providers.BuildFailed.Errorf(
		"the build writes more than the %d MB it may add to the image (a file counts as 4 KB at least); "+
			"reduce what it writes, or request more disk_mb",
		limitMB,
	)
}

// watchDisk ends the largest build while there is less left of the engine's disk than builds are to leave. What runs
// beside builds cannot fill it.
func (b *Builder) watchDisk(ctx context.Context, w *Watch) {
	if b.cfg.DiskReserve <= 0 {
		return
	}
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for low := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !b.diskIsLow(ctx) {
			low = 0
			continue
		}
		if low++; w.limitMB > 0 && w.look(ctx) != nil { // who has written the most is to be known
			w.used.Store(w.limitMB << 20)
		}
		if low >= lowLooks && b.builds.largest(w) {
			w.end(
				providers.BuildDisk.Errorf(
					"the build was stopped: the disk of its worker's engine is nearly full, and this build uses the most; " +
						"build again later, or reduce what it writes",
				),
			)
			return
		}
	}
}

func (b *Builder) diskIsLow(ctx context.Context) bool {
	fs, err := b.cfg.Disk(ctx)
	return err == nil &&
		(int64(fs.Bavail)*fs.Bsize < buildReserve*b.cfg.DiskReserve || fs.Files > 0 && fs.Ffree < fs.Files/leastInodes)
}
