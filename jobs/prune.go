package jobs

import (
	"context"
	"math/rand/v2"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// pruneEvery is the time between looks for images of old builds.
	pruneEvery = time.Minute
	// imageTimeout bounds the removal of one.
	imageTimeout = 15 * time.Second
)

// pruneLoop removes from this worker's engine the images of builds that nobody needs any more.
func (w *Worker) pruneLoop(ctx context.Context, builder providers.Builder) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		w.prune(ctx, builder)
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
	}
}

func (w *Worker) prune(ctx context.Context, builder providers.Builder) {
	ctx, cancel := w.living(ctx, pruneEvery)
	defer cancel()
	n, err := PruneImages(ctx, w.store, builder)
	w.metrics.reconciled.WithLabelValues("image").Add(float64(n))
	if err != nil {
		w.log.WarnContext(ctx, "images of old builds not removed, trying again", "error", err)
	}
}

// PruneImages removes those images that builds of the provider's fleet have made and which neither a template nor a
// live sandbox has, and says how many. Also those whose builds are forgotten: an engine may have been away for longer
// than that.
func PruneImages(ctx context.Context, store *models.Store, builder providers.Builder) (removed int, err error) {
	images, err := builder.Built(ctx)
	if err != nil || len(images) == 0 {
		return 0, err
	}
	unused, err := store.UnusedImages(ctx, images)
	if err != nil {
		return 0, err
	}
	// Those that hang may use up all of the time: another time others come first.
	rand.Shuffle(len(unused), func(i, j int) { unused[i], unused[j] = unused[j], unused[i] })
	err = loop.Each(ctx, store.Ready, unused, func(image string) error {
		one, cancel := context.WithTimeout(ctx, imageTimeout)
		defer cancel()
		err := builder.RemoveImage(one, image)
		if err == nil {
			removed++
		}
		return err
	})
	return removed, err
}
