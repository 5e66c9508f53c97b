package jobs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/node"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// pooled is the fake provider with a pool that only remembers what it is to hold.
type pooled struct {
	*fake.Provider
	mu      sync.Mutex
	classes map[string]providers.PoolClass // by image
	room    providers.PoolRoom
}

func (p *pooled) Stock(_ context.Context, classes []providers.PoolClass, room providers.PoolRoom) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room = room
	p.classes = map[string]providers.PoolClass{}
	for _, c := range classes {
		p.classes[c.Spec.Image] = c
	}
}

func (p *pooled) class(image string) providers.PoolClass {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.classes[image]
}

func (r *rig) pooledWorker(change ...func(*worker.Config)) (*pooled, *worker.Worker) {
	r.T.Helper()
	p := &pooled{Provider: fake.New(fake.Options{State: r.State, PerNode: true})}
	own := func(c *worker.Config) { c.Pool, c.Lease = node.PoolSizes{Min: 4, Max: 16}, 3*time.Second }
	return p, r.WorkerWith(p, 2, append([]func(*worker.Config){own}, change...)...)
}

func TestPoolIsDividedAmongTheWorkersOfAnEngine(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.template(models.Definition{Pool: &models.PoolSize{Min: 3, Max: 5}, WorkDir: "/data", Resources: models.Bounds{MemoryMB: 256}})
	a, _ := r.pooledWorker()
	b, second := r.pooledWorker()
	r.Eventually("together they hold what one would", func() bool {
		x, y := a.class("fake"), b.class("fake")
		return x.Min+y.Min == 3 && x.Max+y.Max == 5 && x.Min > 0 && y.Min > 0
	})
	if c := a.class("fake"); c.Spec.WorkDir != "/data" || c.Spec.Resources.MemoryMB != 256 {
		t.Errorf("the class: %+v", c)
	}
	second.Stop(context.Background())
	r.Eventually("who stays holds all", func() bool { return a.class("fake").Min == 3 && a.class("fake").Max == 5 })
}

func TestPoolFollowsTheTemplates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Must(r.Store.Declare(t.Context(), []models.Template{{Name: "python", Image: "fake-one"}}))
	r.template(models.Definition{})
	p, _ := r.pooledWorker()
	r.Eventually("the shared template has the configured size", func() bool {
		c := p.class("fake-one")
		return c.Min == 4 && c.Max == 16
	})
	if c := p.class("fake"); c.Max != 0 {
		t.Errorf("a tenant's own template has a pool that nobody asked for: %+v", c)
	}
	_, err := r.Store.PutTemplate(t.Context(), models.Owner{}, models.Template{Name: "python", Image: "fake-two"})
	r.Must(err)
	r.Eventually("the pool is of the new image", func() bool { return p.class("fake-two").Min == 4 && p.class("fake-one").Max == 0 })
}

// TestPoolHasTheRoomBesideSandboxes: what waits and what runs together stay within the limits of the node.
func TestPoolHasTheRoomBesideSandboxes(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Must(r.Store.Declare(t.Context(), []models.Template{{Name: "python", Image: "fake"}}))
	p, _ := r.pooledWorker(func(c *worker.Config) { c.Room = worker.Room{Sandboxes: 3, MemoryMB: 1000} })
	has := func(want providers.PoolRoom) func() bool {
		return func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.room == want
		}
	}
	r.Eventually("an empty node is the pool's", has(providers.PoolRoom{Members: 3, CPUs: -1, MemoryMB: 1000}))
	var boxes []string
	for range 2 {
		box, created := r.Create(jobs.CreateSandbox{MemoryMB: 300})
		if j := r.Wait(created); j.State != models.Succeeded {
			t.Fatalf("create: %+v", j.Error)
		}
		boxes = append(boxes, box)
	}
	r.Eventually("sandboxes leave it the rest", has(providers.PoolRoom{Members: 1, CPUs: -1, MemoryMB: 400}))
	gone, err := r.Client.Delete(t.Context(), boxes[0], false, jobsrig.Options())
	r.Must(err)
	r.Wait(gone.Jobs[0].ID)
	r.Eventually("and what ends leaves more", has(providers.PoolRoom{Members: 2, CPUs: -1, MemoryMB: 700}))
}
