package node

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

// Images removes from this node's engine the images of builds that nobody needs any more.
type Images struct{ Base }

// NewImages makes an Images.
func NewImages(b Base) Images { return Images{b} }

// Run removes images until the life ends, if the provider builds any.
func (i Images) Run(ctx context.Context) {
	i.prune(ctx)
	i.Life.Every(pruneEvery, nil, func() { i.prune(ctx) })
}

func (i Images) prune(ctx context.Context) {
	builder, ok := i.Provider.(providers.Builder)
	if !ok {
		return
	}
	ctx, cancel := i.Life.Within(ctx, pruneEvery)
	defer cancel()
	n, err := PruneImages(ctx, i.Store, builder)
	i.Metrics.reconciled.WithLabelValues("image").Add(float64(n))
	if err != nil {
		i.Log.WarnContext(ctx, "images of old builds not removed, trying again", "error", err)
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
