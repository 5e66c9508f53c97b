package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
)

// swept adds up what Sweep counts.
func swept(t *testing.T, p *docker.Provider, sum map[string]int) {
	t.Helper()
	removed, err := p.Sweep(t.Context())
	if err != nil {
		t.Fatalf("sweep: %v", err)
	}
	for sort, n := range removed {
		sum[sort] += n
	}
}

// release opens a provider of another release, makes a sandbox with it and removes it.
func (y *yard) release(t *testing.T) *docker.Provider {
	t.Helper()
	p := y.openWith(t, docker.Config{Guest: ownGuest(t)})
	id, _ := create(t, p)
	if err := p.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return p
}

func (y *yard) hasVolume(t *testing.T, p *docker.Provider) bool {
	t.Helper()
	found, err := y.api.VolumeList(t.Context(), volume.ListOptions{Filters: filters.NewArgs(filters.Arg("name", p.GuestVolume()))})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(found.Volumes, func(v *volume.Volume) bool { return v.Name == p.GuestVolume() })
}

// TestGuestsOfOldReleasesAreSwept: the guest of a release that nothing uses any more goes after its grace; one that is
// used, the sweeper's own and another fleet's stay.
func TestGuestsOfOldReleasesAreSwept(t *testing.T) {
	t.Parallel()
	y, foreign := newYard(t), newYard(t)
	old, used, theirs := y.release(t), y.release(t), foreign.release(t)
	t.Cleanup(func() {
		y.clear(t)
		y.removeVolumes(t, used)
		foreign.removeVolumes(t, theirs)
	})
	create(t, used)
	slow := y.openWith(t, docker.Config{Guest: guestFiles(t)}) // with the grace of every day
	p := y.openWith(t, docker.Config{Guest: ownGuest(t), GuestGrace: time.Second})
	t.Cleanup(func() { y.removeVolumes(t, p) })
	id, _ := create(t, p)
	if err := p.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	swept(t, p, count)
	if !y.hasVolume(t, old) {
		t.Error("the old guest is removed at once")
	}
	await(t, func() bool {
		swept(t, slow, map[string]int{})
		swept(t, p, count)
		return !y.hasVolume(t, old)
	})
	for name, keeper := range map[string]*docker.Provider{"a sandbox's": used, "another fleet's": theirs, "the sweeper's": p} {
		if !y.hasVolume(t, keeper) {
			t.Errorf("%s guest is removed", name)
		}
	}
	if count["volume"] != 1 {
		t.Errorf("counted %v, want one volume", count)
	}
}

// TestAVolumeThatCannotBeRemovedKeepsNoOtherFromBeingSwept: most of what is left cannot be removed, which is told in short.
func TestAVolumeThatCannotBeRemovedKeepsNoOtherFromBeingSwept(t *testing.T) {
	t.Parallel()
	const stuck = 5
	y := newYard(t)
	x := newProxy(t, y.api.DaemonHost())
	t.Cleanup(func() { x.standIn(nil) })
	p := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t), GuestGrace: time.Nanosecond})
	ours := strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		for n := range stuck {
			_ = y.api.VolumeRemove(context.Background(), guestName(ours, n), true)
		}
	})
	for n := range stuck + 1 {
		_, err := y.api.VolumeCreate(t.Context(), volume.CreateOptions{
			Name: guestName(ours, n), Labels: map[string]string{"sandyard.fleet": y.fleet, "sandyard.guest": strings.TrimPrefix(guestName(ours, n), "sandyard-guest-")},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var asked atomic.Int32
	x.standIn(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != http.MethodDelete || strings.HasSuffix(r.URL.Path, guestName(ours, stuck)) {
			return false
		}
		asked.Add(1)
		http.Error(w, `{"message": "device or resource busy"}`, http.StatusInternalServerError)
		return true
	})
	_, err := p.Sweep(t.Context())
	if err != nil || asked.Load() > 0 {
		t.Fatalf("the first look removes something: %d, %v", asked.Load(), err)
	}
	removed, err := p.Sweep(t.Context())
	if removed["volume"] != 1 || asked.Load() != stuck {
		t.Errorf("removed %v, asked for %d others, want 1 and %d", removed, asked.Load(), stuck)
	}
	if err == nil || strings.Count(err.Error(), "device or resource busy") != 3 || !strings.HasSuffix(err.Error(), "5 in all") {
		t.Errorf("the failures are told as %v", err)
	}
}

func guestName(ours string, n int) string { return fmt.Sprintf("sandyard-guest-%s%d", ours, n) }

// TestWorkerDiesWhileItFillsAGuest: the container through which it was to be filled goes, and with it the lock that it was.
func TestWorkerDiesWhileItFillsAGuest(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openWith(t, docker.Config{Guest: ownGuest(t), GuestGrace: time.Second})
	name := p.GuestVolume() + "-fill"
	labels := map[string]string{"sandyard.fleet": y.fleet}
	_, err := y.api.ContainerCreate(t.Context(), &container.Config{Image: image, Entrypoint: []string{"/never"}, Labels: labels}, nil, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	await(t, func() bool { swept(t, p, count); return count["filler"] == 1 })
	create(t, p)
	t.Cleanup(func() { y.clear(t); y.removeVolumes(t, p) })
}

// TestImagesThatLostTheirNamesAreSwept makes an image twice, as a build does whose first worker died after it. The first
// one goes, but not while a sandbox of it lives; the second and another fleet's stay.
func TestImagesThatLostTheirNamesAreSwept(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	y, foreign := newYard(t), newYard(t)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), GuestGrace: time.Second})
	b := y.building(t, "true")
	made := func(p *docker.Provider, b providers.Build) string {
		if err := p.Build(t.Context(), b, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		is, err := y.api.ImageInspect(t.Context(), b.Image)
		if err != nil {
			t.Fatal(err)
		}
		return is.ID
	}
	lives := func(id string) bool { _, err := y.api.ImageInspect(t.Context(), id); return err == nil }
	first, box := made(p, b), newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: box, Image: b.Image}); err != nil {
		t.Fatal(err)
	}
	second := made(p, b)
	theirs, other := foreign.open(t), foreign.building(t, "true")
	lost := made(theirs, other)
	made(theirs, other)
	t.Cleanup(func() {
		foreign.clear(t)
		_, _ = y.api.ImageRemove(context.Background(), lost, dockerimage.RemoveOptions{})
	})
	count := map[string]int{}
	for began := time.Now(); time.Since(began) < 3*time.Second; <-time.After(100 * time.Millisecond) {
		swept(t, p, count)
	}
	if !lives(first) || count["image"] != 0 {
		t.Fatalf("an image is removed under its sandbox; counted %v", count)
	}
	if err := p.Delete(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { swept(t, p, count); return !lives(first) })
	if count["image"] != 1 || !lives(second) || !lives(lost) {
		t.Errorf("counted %v; the second one stays: %v, another fleet's: %v", count, lives(second), lives(lost))
	}
}

// TestSweepCountsDeadPools: what the pool's own sweep removes of dead workers' members is told.
func TestSweepCountsDeadPools(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y, foreign := newYard(t), newYard(t)
	_, x := y.doomed(t, 2)
	_, theirs := foreign.doomed(t, 1)
	x.cut()
	theirs.cut()
	await(t, func() bool { return !hasRunning(y.waiting(t)) && !hasRunning(foreign.waiting(t)) })
	p := y.open(t)
	count := map[string]int{}
	await(t, func() bool { swept(t, p, count); return len(y.waiting(t)) == 0 })
	await(t, func() bool { swept(t, p, count); return count["pool"] == 2 })
	if left := foreign.waiting(t); len(left) != 1 {
		t.Errorf("of the other fleet's pool %v are left", left)
	}
}

// TestListKnowsOnlyWhatItHasMade: neither another fleet's container, nor one that somebody has started from an image that
// a build of this fleet has made, which has its labels, is a sandbox, and none of them is removed.
func TestListKnowsOnlyWhatItHasMade(t *testing.T) {
	t.Parallel()
	y, foreign := newYard(t), newYard(t)
	p := y.open(t)
	mine, _ := create(t, p)
	theirs, _ := create(t, foreign.open(t))
	built := "sandyard-test:" + strings.ToLower(rand.Text())
	_, err := y.api.ContainerCommit(t.Context(), "sandyard-"+mine, container.CommitOptions{Reference: built, Changes: []string{
		"LABEL sandyard.fleet=" + y.fleet + " sandyard.build=" + built + ` sandyard.sandbox=""`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		y.clear(t)
		if _, err := y.api.ImageRemove(context.Background(), built, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	byHand, err := y.api.ContainerCreate(t.Context(), &container.Config{Image: built}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.List(t.Context())
	if err != nil || len(found) != 1 || found[0].ID != mine {
		t.Errorf("listed %+v, %v; want only %s", found, err, mine)
	}
	if images, err := p.Built(t.Context()); err != nil || !slices.Equal(images, []string{built}) {
		t.Errorf("built %v, %v", images, err)
	}
	if images, err := foreign.open(t).Built(t.Context()); err != nil || len(images) != 0 {
		t.Errorf("the other fleet has built %v, %v", images, err)
	}
	if err := p.Delete(t.Context(), theirs); err != nil {
		t.Errorf("delete of another fleet's sandbox: %v", err)
	}
	swept(t, p, map[string]int{})
	for _, ref := range []string{"sandyard-" + theirs, byHand.ID} {
		if _, err := y.api.ContainerInspect(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: theirs, Image: image}); err == nil {
		t.Error("another fleet's sandbox is taken")
	}
}
