package docker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sync/errgroup"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

var _ providers.Sweeper = (*Provider)(nil)

// sightings is when leftovers were first seen without interruption, by name.
type sightings map[string]time.Time

// lasts says whether a leftover has been one for so long.
func (s sightings) lasts(name string, grace time.Duration) bool {
	first, known := s[name]
	if !known {
		s[name] = time.Now()
	}
	return known && time.Since(first) >= grace
}

// keep forgets those that are leftovers no more.
func (s sightings) keep(seen map[string]bool) {
	for name := range s {
		if !seen[name] {
			delete(s, name)
		}
	}
}

// namelessGrace is how long an image of a build may be without its name: for the moment in which the engine gives it one.
const namelessGrace = 10 * time.Second

const (
	// removesAtOnce is how many leftovers are removed at once.
	removesAtOnce = 4
	// toldFailures is how many errors of one sweep are told; the others are likely the same.
	toldFailures = 3
)

// removeAll calls remove for all items, each with a time of its own. One that fails keeps no other from its turn: their order is
// another one each time, for those that hang may use up all of ctx.
func removeAll[T any](ctx context.Context, items []T, remove func(context.Context, T) (bool, error)) (removed int, err error) {
	var mu sync.Mutex
	var errs []error
	failed := 0
	var all errgroup.Group
	all.SetLimit(removesAtOnce)
	for _, i := range rand.Perm(len(items)) {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			own, stop := context.WithTimeout(ctx, removeTimeout)
			defer stop()
			done, err := remove(own, items[i])
			mu.Lock()
			defer mu.Unlock()
			if done && err == nil {
				removed++
			}
			if err == nil {
				return nil
			}
			if failed++; failed <= toldFailures {
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = all.Wait() // the errors are ours
	if failed > toldFailures {
		errs = append(errs, fmt.Errorf("%d in all", failed))
	}
	return removed, errors.Join(errs...)
}

// Sweep implements providers.Sweeper: guests of other releases that no container has used for a while, what workers have
// left that died while they filled one, images of builds that have lost their names to later attempts, and members of
// dead workers' pools, all of this fleet. There are no networks of ours to remove.
func (p *Provider) Sweep(ctx context.Context) (map[string]int, error) {
	seen := map[string]bool{}
	fillers, err := p.sweepFillers(ctx, seen)
	volumes, err2 := p.sweepGuests(ctx, seen)
	images, err3 := p.sweepImages(ctx, seen)
	p.leftovers.keep(seen)
	counts := map[string]int{"filler": fillers, "volume": volumes, "image": images, "pool": int(p.sweptMembers.Swap(0))}
	return counts, errors.Join(err, err2, err3)
}

// sweepFillers removes containers that keep others from filling a guest's volume for longer than that takes.
func (p *Provider) sweepFillers(ctx context.Context, seen map[string]bool) (removed int, err error) {
	found, err := p.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("name", "^/"+guestVolumePrefix+"[0-9a-f]+"+fillerSuffix+"$"),
		filters.Arg("status", "created"))})
	if err != nil {
		return 0, engineerr.Translate(err, "list what fills guests")
	}
	var over []string
	for _, c := range found {
		seen[c.ID] = true
		if p.leftovers.lasts(c.ID, min(fillTimeout, p.cfg.GuestGrace)) {
			over = append(over, c.ID)
		}
	}
	return removeAll(ctx, over, func(ctx context.Context, ref string) (bool, error) { return true, p.removeIdle(ctx, ref) })
}

// sweepGuests removes the volumes of other guests that nothing uses. One that is wanted again is filled again.
func (p *Provider) sweepGuests(ctx context.Context, seen map[string]bool) (removed int, err error) {
	found, err := p.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("dangling", "true"))})
	if err != nil {
		return 0, engineerr.Translate(err, "list the volumes")
	}
	var over []string
	for _, v := range found.Volumes {
		sum, ours := strings.CutPrefix(v.Name, guestVolumePrefix)
		if !ours || sum == p.guest.sum || v.Labels[labelGuest] != sum {
			continue
		}
		seen[v.Name] = true
		if p.leftovers.lasts(v.Name, p.cfg.GuestGrace) {
			over = append(over, v.Name)
		}
	}
	return removeAll(ctx, over, func(ctx context.Context, name string) (bool, error) {
		err := p.api.VolumeRemove(ctx, name, false)
		if err == nil {
			p.cfg.Logger.InfoContext(ctx, "guest volume of another release removed", "volume", name)
		}
		return err == nil, unlessGone(err, "remove a guest's volume")
	})
}

// unlessGone translates the error of a removal, unless it is of what is gone, or in use by now.
func unlessGone(err error, doing string) error {
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return engineerr.Translate(err, doing)
}

// sweepImages removes what a build has made whose image was made again: the later one has the name, by which alone anybody
// would ask for it. One that a container still uses stays until that is gone.
func (p *Provider) sweepImages(ctx context.Context, seen map[string]bool) (removed int, err error) {
	found, err := p.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("label", labelBuild), filters.Arg("dangling", "true"))})
	if err != nil {
		return 0, engineerr.Translate(err, "list the images without a name")
	}
	var over []string
	for _, i := range found {
		seen[i.ID] = true
		if p.leftovers.lasts(i.ID, min(namelessGrace, p.cfg.GuestGrace)) {
			over = append(over, i.ID)
		}
	}
	return removeAll(ctx, over, func(ctx context.Context, id string) (bool, error) {
		_, err := p.api.ImageRemove(ctx, id, image.RemoveOptions{PruneChildren: true})
		if err == nil {
			p.cfg.Logger.InfoContext(ctx, "replaced image of a build removed", "image", id)
		}
		return err == nil, unlessGone(err, "remove an image without a name")
	})
}
