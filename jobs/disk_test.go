package jobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/worker"
	"sandyard/models"
)

func watchingDisk(c *worker.Config) { c.DiskReserve, c.DiskEvery = 1<<30, 10*time.Millisecond }

// TestFullDisk: a node whose disk is nearly full gets no new sandboxes, serves those that it has, and comes back when
// there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.State.SetDiskFree(10 << 30)
	r.Worker(4, watchingDisk)
	low := func() bool {
		nodes, err := r.Store.Nodes(t.Context())
		r.Must(err)
		return nodes[0].Disk.Low
	}
	box, made := r.Create(jobs.CreateSandbox{})
	r.Wait(made)
	r.State.SetDiskFree(1<<30 - 1)
	r.Eventually("the node says that its disk is full", low)
	_, waiting := r.Create(jobs.CreateSandbox{})
	r.Eventually("a create waits for space", func() bool { return strings.Contains(r.whyRequeued(waiting), "disks of 1 are nearly full") })
	if j := r.Wait(r.Exec(box, "fake:stdout still")); string(j.Stdout) != "still" {
		t.Errorf("in the sandbox that it has: %s %v", j.State, j.Error)
	}
	r.State.SetDiskFree(2 << 30)
	r.Eventually("there is space again", func() bool { return !low() })
	if j := r.Wait(waiting); j.State != models.Succeeded {
		t.Errorf("the create ended %s: %v", j.State, j.Error)
	}
}

func TestFullDiskIsItsOwnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, watchingDisk)
	r.Eventually("the node says that its disk is full", func() bool {
		nodes, err := r.Store.Nodes(t.Context())
		r.Must(err)
		return nodes[0].Disk.Low
	})
	_, made := r.Create(jobs.CreateSandbox{})
	r.SQL(`UPDATE jobs SET max_attempts = 1`) // it would be tried for most of a minute
	if j := r.Wait(made); j.State != models.Failed || j.Error.Code != "disk_full" {
		t.Errorf("the create ended %s: %+v", j.State, j.Error)
	}
}

// TestAFullDiskTakesTheImagesOfOldBuilds: at once, where they would else be looked for once a minute.
func TestAFullDiskTakesTheImagesOfOldBuilds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.State.SetDiskFree(10 << 30)
	e := &jobsrig.Images{Held: []string{"fake"}}
	r.builder(e, watchingDisk)
	for _, script := range []string{"one", "two"} {
		if j := r.Wait(r.build(script).Jobs[0].ID); j.State != models.Succeeded {
			t.Fatalf("the build: %s %+v", j.State, j.Error)
		}
	}
	r.State.SetDiskFree(1<<30 - 1)
	r.Eventually("only what is used is held", func() bool {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		return slices.Equal(e.Held, []string{"fake", r.image()})
	})
}

func TestAFullDiskTakesThePool(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.State.SetDiskFree(10 << 30)
	r.Must(r.Store.Declare(t.Context(), []models.Template{{Name: "python", Image: "fake-one"}}))
	p, _ := r.pooledWorker(watchingDisk)
	r.Eventually("there is a pool", func() bool { return p.class("fake-one").Min == 4 })
	r.State.SetDiskFree(1<<30 - 1)
	r.Eventually("it is given up", func() bool { return p.class("fake-one").Max == 0 })
	r.State.SetDiskFree(10 << 30)
	r.Eventually("it is filled again", func() bool { return p.class("fake-one").Min == 4 })
}
