package docker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

const (
	// sizeEvery is the time between looks at what a build has written; where one takes long, there are fewer.
	sizeEvery = 2 * time.Second
	// diskEvery is the time between looks at what is left of the engine's disk, which costs next to nothing: a build can
	// write some hundred megabytes meanwhile.
	diskEvery = 100 * time.Millisecond
	// lowLooks is how many in a row must have found too little.
	lowLooks = 2
	// buildReserve is how many times the reserve builds leave free: a node whose disk has less than the reserve takes no sandboxes,
	// and that is not in the hands of a build.
	buildReserve = 2
	// leastInodes is the part of the disk's inodes that builds leave free, as one in so many.
	leastInodes = 100
)

// buildWatches are the builds under way.
type buildWatches struct {
	mu  sync.Mutex
	all map[*buildWatch]struct{}
}

// buildWatch ends a build that writes more than it may, or takes the last of the engine's disk.
type buildWatch struct {
	layer   layer
	limitMB int64
	end     context.CancelCauseFunc
	used    atomic.Int64 // bytes, as seen last
}

// begin adds a build; the returned function takes it away.
func (w *buildWatches) begin(b *buildWatch) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*buildWatch]struct{}{}
	}
	w.all[b] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, b)
	}
}

// largest says whether no other build has written more.
func (w *buildWatches) largest(b *buildWatch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.all {
		if other != b && other.used.Load() > b.used.Load() {
			return false
		}
	}
	return true
}

// watchBuild watches until ctx ends.
func (p *Provider) watchBuild(ctx context.Context, b *buildWatch) {
	var looks sync.WaitGroup
	defer looks.Wait()
	looks.Go(func() { p.watchDisk(ctx, b) })
	wait := sizeEvery
	for b.limitMB > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if err := b.look(ctx); err != nil {
			b.end(err)
			return
		}
		wait = max(sizeEvery, 5*time.Since(began))
	}
}

// look measures the build. Its error is why it must end.
func (b *buildWatch) look(ctx context.Context) error {
	limit := b.limitMB << 20
	used, err := b.layer.written(ctx, limit)
	b.used.Store(used)
	switch {
	case errors.Is(err, errTooDeep):
		return providers.Errorf(providers.BuildFailed, "the build nests directories deeper than %d levels", deepest)
	case err == nil && used > limit:
		return tooLarge(b.limitMB)
	}
	return nil // what cannot be measured now can be later
}

func tooLarge(limitMB int64) error {
	return providers.Errorf(providers.BuildFailed, "the build writes more than the %d MB it may add to the image (a file counts as 4 KB at least); "+
		"reduce what it writes, or request more disk_mb", limitMB)
}

// watchDisk ends the largest build while there is less left of the engine's disk than builds are to leave. What runs beside
// builds cannot fill it.
func (p *Provider) watchDisk(ctx context.Context, b *buildWatch) {
	if p.cfg.DiskReserve <= 0 {
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
		if !p.diskIsLow(ctx) {
			low = 0
			continue
		}
		if low++; b.limitMB > 0 && b.look(ctx) != nil { // who has written the most is to be known
			b.used.Store(b.limitMB << 20)
		}
		if low >= lowLooks && p.builds.largest(b) {
			b.end(providers.Errorf(providers.BuildDisk, "the build was stopped: the disk of its worker's engine is nearly full, and this build uses the most; "+
				"build again later, or reduce what it writes"))
			return
		}
	}
}

func (p *Provider) diskIsLow(ctx context.Context) bool {
	fs, err := p.disk(ctx)
	return err == nil && (int64(fs.Bavail)*fs.Bsize < buildReserve*p.cfg.DiskReserve || fs.Files > 0 && fs.Ffree < fs.Files/leastInodes)
}

// disk is what the engine's directory lies on, for an engine on this machine whose directory can be seen from here.
func (p *Provider) disk(ctx context.Context) (fs unix.Statfs_t, err error) {
	unknown := providers.Errorf(providers.NotSupported, "the engine's data directory is not visible to this worker")
	if !strings.HasPrefix(p.api.DaemonHost(), "unix://") {
		return fs, unknown
	}
	dir := p.root.Load()
	if dir == nil {
		info, err := p.api.Info(ctx)
		if err != nil {
			return fs, engineerr.Translate(err, "ask the docker engine")
		}
		dir = &info.DockerRootDir
		p.root.Store(dir)
	}
	if err := unix.Statfs(*dir, &fs); err != nil {
		return fs, unknown
	}
	return fs, nil
}
