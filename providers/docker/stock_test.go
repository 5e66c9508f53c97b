package docker_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
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
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), Pool: pool.Config{Size: 1}})
	class := func(image string) providers.PoolClass {
		return providers.PoolClass{Min: 1, Spec: providers.Spec{
			Image: image, WorkDir: "/data", Resources: providers.Resources{MemoryMB: 384, DiskMB: 64},
		}}
	}
	p.Stock(t.Context(), []providers.PoolClass{class(one), class("sandyard/none:none")}, providers.AnyRoom())
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
	p.Stock(t.Context(), []providers.PoolClass{class(two)}, providers.AnyRoom())
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

// TestWorkersOfOneEngineRefillInTurns: while one makes a member, another asks the engine for the name under which members are
// made, is refused it, and makes none; later it does.
func TestWorkersOfOneEngineRefillInTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	cfg := docker.Config{Guest: guestFiles(t), Pool: pool.Config{Size: 1, Patience: 2 * time.Minute}}
	x := newProxy(t, y.api.DaemonHost())
	makes, release := x.holdStart(t)
	slow := cfg
	slow.Host = x.host
	first := y.openWith(t, slow)
	if err := first.Ensure(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	<-makes
	watched := newProxy(t, y.api.DaemonHost())
	t.Cleanup(func() { watched.standIn(nil) })
	var refused, made atomic.Int64
	watched.standIn(func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/containers/create") || !strings.HasPrefix(r.URL.Query().Get("name"), "sandyard-refill-") {
			return false
		}
		answer := httptest.NewRecorder()
		engine.ServeHTTP(answer, r)
		switch answer.Code {
		case http.StatusConflict:
			refused.Add(1)
		case http.StatusCreated:
			made.Add(1)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return true
	})
	cfg.Host = watched.host
	second := y.openWith(t, cfg)
	if err := second.Ensure(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return refused.Load() > 1 || made.Load() > 0 })
	if made.Load() > 0 || second.Waiting() > 0 {
		t.Error("both make a member at once")
	}
	release()
	for _, p := range []*docker.Provider{first, second} {
		await(t, func() bool { return p.Waiting() == 1 })
	}
}

// TestClassesShareTheRoom: one that asks for more than there is room for leaves the others theirs, and when there is less room
// what waits goes.
func TestClassesShareTheRoom(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	greedy, modest, late := y.tagged(t), y.tagged(t), y.tagged(t)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), Pool: pool.Config{Size: 1, Patience: brief}})
	class := func(image string, least int) providers.PoolClass {
		return providers.PoolClass{Min: least, Spec: providers.Spec{Image: image, Resources: providers.Resources{MemoryMB: 128, DiskMB: 64}}}
	}
	room := providers.PoolRoom{Members: -1, CPUs: -1, MemoryMB: 3*128 + 100}
	p.Stock(t.Context(), []providers.PoolClass{class(greedy, 1000), class(modest, 1)}, room)
	await(t, func() bool { return y.members(t, greedy) == 2 && y.members(t, modest) == 1 })
	p.Stock(t.Context(), []providers.PoolClass{class(greedy, 1000), class(modest, 1), class(late, 1)}, room)
	await(t, func() bool { return y.members(t, greedy) == 1 && y.members(t, modest) == 1 && y.members(t, late) == 1 })
	room.Members = 1
	p.Stock(t.Context(), []providers.PoolClass{class(greedy, 1000), class(modest, 1), class(late, 1)}, room)
	await(t, func() bool { return len(y.waiting(t)) == 1 })
}

// members is how many containers of the image wait.
func (y *yard) members(t *testing.T, image string) int {
	t.Helper()
	found, err := y.api.ContainerList(t.Context(), container.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", "sandyard.fleet="+y.fleet), filters.Arg("label", "sandyard.pool=docker.io/library/"+image), filters.Arg("name", "^/sandyard-pool-"))})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
