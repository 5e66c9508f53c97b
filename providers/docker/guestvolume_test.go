package docker_test

import (
	"sync"
	"testing"
	"testing/fstest"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
)

func TestBrokenGuestLeavesNothing(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.openWith(t, docker.Config{Guest: fstest.MapFS{"guest": {Data: []byte("#!/bin/sh\nexit 3\n")}}})
	t.Cleanup(func() { y.removeVolumes(t, p) })
	_, err := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
	if err == nil {
		t.Error("create succeeded without a guest")
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("left %+v, %v", found, err)
	}
}

func TestManyWorkersFillTheGuestVolumeOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	files := ownGuest(t)
	var wg sync.WaitGroup
	var last *docker.Provider
	ids := []string{newID(), newID(), newID()}
	for _, id := range ids {
		p := y.openWith(t, docker.Config{Guest: files})
		last = p
		wg.Go(func() {
			if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if err := last.Delete(t.Context(), id); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	y.removeVolumes(t, last)
}

func TestPrunedGuestVolumeIsFilledAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openWith(t, docker.Config{Guest: ownGuest(t)})
	for range 2 {
		id, _ := create(t, p)
		if err := p.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		y.removeVolumes(t, p)
	}
}
