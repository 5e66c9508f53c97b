package docker_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	dockerimage "github.com/docker/docker/api/types/image"

	"sandyard/providers"
	"sandyard/providers/docker"
)

// tagged returns another name of the image, which goes with the test.
func (y *yard) tagged(t *testing.T) string {
	t.Helper()
	name := "sandyard-test:" + strings.ToLower(rand.Text())
	if err := y.api.ImageTag(t.Context(), image, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := y.api.ImageRemove(context.Background(), name, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	return name
}

func TestPoolHoldsWhatTheTemplatesSay(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	one, two := y.tagged(t), y.tagged(t)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), Pool: docker.Pool{Size: 1}})
	class := func(image string) providers.PoolClass {
		return providers.PoolClass{Min: 1, Spec: providers.Spec{
			Image: image, WorkDir: "/data", Resources: providers.Resources{MemoryMB: 384, DiskMB: 64},
		}}
	}
	p.Stock(t.Context(), []providers.PoolClass{class(one), class("sandyard/none:none")})
	await(t, func() bool { return p.Waiting() == 1 })
	made := func(image string) (string, bool) {
		t.Helper()
		members := y.waiting(t)
		spec := class(image).Spec
		spec.ID, spec.Env = newID(), map[string]string{"WHO": "me"}
		spec.Resources.CPUs = 0.5
		got, err := p.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if says := shell(t, open(t, p, spec.ID), `echo "$WHO $(pwd) $HOME"`); says != "me /data /data" {
			t.Errorf("the sandbox says %q", says)
		}
		_, pooled := members[got.Ref]
		return got.Ref, pooled
	}
	if _, pooled := made(one); !pooled {
		t.Error("a template with its own work directory and disk has no use of the pool")
	}
	await(t, func() bool { return p.Waiting() == 1 })
	old := y.waiting(t)
	p.Stock(t.Context(), []providers.PoolClass{class(two)})
	if ref, _ := made(two); len(old) != 1 || old[ref] != "" {
		t.Errorf("%s is of the old image; those were %v", ref, old)
	}
	await(t, func() bool {
		now := y.waiting(t)
		for ref := range old {
			if now[ref] != "" {
				return false
			}
		}
		return len(now) == 1 && p.Waiting() == 1
	})
	if _, pooled := made(two); !pooled {
		t.Error("the pool of the new image is not used")
	}
}

func TestWorkersOfOneEngineRefillInTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var workers []*docker.Provider
	for range 2 {
		p := y.openWith(t, docker.Config{Guest: guestFiles(t), Pool: docker.Pool{Size: 1, Patience: 2 * time.Minute}})
		if err := p.Ensure(t.Context(), image); err != nil {
			t.Fatal(err)
		}
		workers = append(workers, p)
	}
	for _, p := range workers { // one after the other, each in the time that one container may take
		await(t, func() bool { return p.Waiting() == 1 })
	}
	if n := len(y.waiting(t)); n != 2 {
		t.Errorf("%d wait", n)
	}
}
