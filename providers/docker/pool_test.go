package docker_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
)

// openPool opens a provider and waits until its pool is full.
func (y *yard) openPool(t testing.TB, pool pool.Config) *docker.Provider {
	t.Helper()
	return y.fillPool(t, image, docker.Config{Guest: guestFiles(t), Pool: pool})
}

func (y *yard) fillPool(t testing.TB, image string, cfg docker.Config) *docker.Provider {
	t.Helper()
	p := y.openWith(t, cfg)
	if err := p.Ensure(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return p.Waiting() == cfg.Pool.Size })
	return p
}

// waiting lists the containers of pools, by the engine's id, with their state.
func (y *yard) waiting(t testing.TB) map[string]string {
	t.Helper()
	found, err := y.api.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", "sandyard.fleet="+y.fleet), filters.Arg("name", "^/sandyard-pool-"))})
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]string)
	for _, c := range found {
		states[c.ID] = c.State
	}
	return states
}

func TestEveryMemberIsUsedOnce(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 4})
	members := y.waiting(t)
	made := make([]providers.Instance, 20)
	var creates sync.WaitGroup
	for i := range made {
		creates.Go(func() {
			id := newID()
			var err error
			made[i], err = p.Create(t.Context(), providers.Spec{ID: id, Image: image, Env: map[string]string{"SELF": id}})
			if err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	creates.Wait()
	used := map[string]bool{}
	for _, m := range made {
		if used[m.Ref] {
			t.Errorf("container %s is two sandboxes", m.Ref)
		}
		used[m.Ref] = true
		if got := shell(t, open(t, p, m.ID), `echo "$SELF"; ls`); got != m.ID {
			t.Errorf("sandbox %s says %q", m.ID, got)
		}
	}
	for ref := range members {
		if !used[ref] {
			t.Errorf("container %s waits on, although it was wanted", ref)
		}
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != len(made) {
		t.Errorf("listed %d, %v; want %d", len(found), err, len(made))
	}
}

func TestPoolIsRefilledGrowsAndGoesWithItsWorker(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 1, Max: 2})
	create(t, p)
	await(t, func() bool { return p.Waiting() == 1 })
	kept, _ := create(t, p)
	await(t, func() bool { return p.Waiting() == 2 })
	if found, err := p.List(t.Context()); err != nil || len(found) != 2 {
		t.Errorf("listed %+v, %v; want the two sandboxes", found, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if left := y.waiting(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := shell(t, open(t, y.open(t), kept), "echo on"); got != "on" {
		t.Errorf("the sandbox says %q", got)
	}
}

func TestDeadMembersAreNotHandedOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 2})
	before := y.waiting(t)
	for ref := range before {
		if err := y.api.ContainerKill(t.Context(), ref, "KILL"); err != nil {
			t.Fatal(err)
		}
	}
	id, box := create(t, p)
	if got := shell(t, box, "echo on"); got != "on" {
		t.Errorf("got %q", got)
	}
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if _, dead := before[found.ID]; err != nil || dead {
		t.Errorf("the sandbox is %s, %v", found.ID, err)
	}
	await(t, func() bool {
		now := y.waiting(t)
		for ref := range before {
			if _, left := now[ref]; left {
				return false
			}
		}
		return len(now) == 2
	})
}

func TestStaleImageIsNotHandedOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	name := "sandyard-test:" + strings.ToLower(rand.Text())
	if err := y.api.ImageTag(t.Context(), image, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := y.api.ImageRemove(context.Background(), name, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	t.Cleanup(func() { y.clear(t) })
	p := y.fillPool(t, name, docker.Config{Guest: guestFiles(t), Pool: pool.Config{Size: 1, Patience: time.Minute}})
	for old := range y.waiting(t) {
		_, err := y.api.ContainerCommit(t.Context(), old, container.CommitOptions{Reference: name, Changes: []string{"ENV RELEASE=two"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		id := newID()
		if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: name}); err != nil {
			t.Fatal(err)
		}
		if got := shell(t, open(t, p, id), `echo "$RELEASE"`); got != "two" {
			t.Errorf("the sandbox is of release %q", got)
		}
		await(t, func() bool { return p.Waiting() == 1 })
	}
}

func TestMembersBecomeWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 1})
	members := y.waiting(t)
	spec := providers.Spec{
		ID: newID(), Image: image, Env: map[string]string{"HOME": "/tmp", "WHO": "me"},
		Resources: providers.Resources{CPUs: 0.5, MemoryMB: 768, DiskMB: 256, Pids: 64},
	}
	made, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := members[made.Ref]; !ok || made.ID != spec.ID || made.State != providers.StateRunning {
		t.Errorf("made %+v, not from the pool %v", made, members)
	}
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := found.HostConfig.Resources; r.Memory != 768<<20 || r.MemorySwap != 768<<20 || r.NanoCPUs != 5e8 || *r.PidsLimit != 64+40 {
		t.Errorf("limits: %+v, %d processes", r, *r.PidsLimit)
	}
	const ask = `echo "$HOME $WHO"; cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max`
	for worker, p := range map[string]*docker.Provider{"its worker": p, "another": y.open(t)} {
		if got := shell(t, open(t, p, spec.ID), ask); got != "/tmp me\n805306368" {
			t.Errorf("%s reads %q", worker, got)
		}
	}
	if again, err := y.open(t).Create(t.Context(), spec); err != nil || again.Ref != made.Ref {
		t.Errorf("create again: %+v, %v", again, err)
	}
}

func TestMembersAreNotUsedForWhatTheyAreNot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 1})
	members := y.waiting(t)
	for name, spec := range map[string]providers.Spec{
		"smaller disk":     {Resources: providers.Resources{MemoryMB: 512, DiskMB: 64}},
		"little memory":    {Resources: providers.Resources{MemoryMB: 128}},
		"a work directory": {WorkDir: "/data"},
		"labels":           {Labels: map[string]string{"a": "b"}},
	} {
		spec.ID, spec.Image = newID(), image
		made, err := p.Create(t.Context(), spec)
		if _, pooled := members[made.Ref]; err != nil || pooled {
			t.Errorf("%s: %+v, %v; want a container of its own", name, made, err)
		}
	}
}
