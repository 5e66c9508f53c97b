package docker_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
)

// brief is how long members outlive their worker in these tests.
const brief = 6 * time.Second

// doomed opens a provider with a full pool whose worker will die.
func (y *yard) doomed(t *testing.T, size int) (*docker.Provider, *proxy) {
	t.Helper()
	x := newProxy(t, y.api.DaemonHost())
	p := y.fillPool(t, image, docker.Config{Host: x.host, Guest: guestFiles(t), Pool: pool.Config{Size: size, Patience: brief}})
	return p, x
}

func TestWorkerDiesWhileItClaims(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for _, c := range []struct {
		name   string
		at     cutPoint
		adopts bool // the next worker finds the sandbox
	}{{"before the name", before, false}, {"with the name", after, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			p, x := y.doomed(t, 1)
			members := y.waiting(t)
			x.cutAt(func(r *http.Request) cutPoint {
				if strings.HasSuffix(r.URL.Path, "/rename") && !strings.HasPrefix(r.URL.Query().Get("name"), "sandyard-pool-") {
					return c.at
				}
				return never
			})
			spec := providers.Spec{ID: newID(), Image: image, Env: map[string]string{"WHO": "me"}}
			if _, err := p.Create(t.Context(), spec); err == nil || !providers.AsError(err).Retryable() {
				t.Fatalf("the dying worker's create answers %v", err)
			}
			next := y.open(t)
			made, err := next.Create(t.Context(), spec)
			if _, adopted := members[made.Ref]; err != nil || adopted != c.adopts {
				t.Errorf("the next worker's create: %+v, %v; adopts %v", made, err, adopted)
			}
			if got := shell(t, open(t, next, spec.ID), `echo "$WHO"`); got != "me" {
				t.Errorf("got %q", got)
			}
			if found, err := next.List(t.Context()); err != nil || len(found) != 1 || found[0].ID != spec.ID {
				t.Errorf("listed %+v, %v", found, err)
			}
			await(t, func() bool { return !hasRunning(y.waiting(t)) })
			if got := shell(t, open(t, next, spec.ID), `echo "$WHO"`); got != "me" {
				t.Errorf("when the pool is gone, got %q", got)
			}
		})
	}
}

func TestPoolOfADeadWorkerIsSwept(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	_, x := y.doomed(t, 2)
	old := y.waiting(t)
	if len(old) != 2 {
		t.Fatalf("waiting: %v", old)
	}
	x.cut()
	await(t, func() bool { return !hasRunning(y.waiting(t)) })
	y.openPool(t, pool.Config{Size: 1})
	await(t, func() bool {
		now := y.waiting(t)
		for ref := range old {
			if _, left := now[ref]; left {
				return false
			}
		}
		return len(now) == 1
	})
}

// TestWorkerDiesWhileItRefills: the name under which a member is made is free again soon, and another worker refills.
func TestWorkerDiesWhileItRefills(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, at := range map[string]cutPoint{"before the start": before, "after the start": after} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			x := newProxy(t, y.api.DaemonHost())
			var died atomic.Bool
			x.cutAt(func(r *http.Request) cutPoint {
				if !strings.HasSuffix(r.URL.Path, "/start") {
					return never
				}
				died.Store(true)
				return at
			})
			cfg := docker.Config{Host: x.host, Guest: guestFiles(t), Pool: pool.Config{Size: 1, Patience: brief}}
			if err := y.openWith(t, cfg).Ensure(t.Context(), image); err != nil {
				t.Fatal(err)
			}
			await(t, died.Load)
			y.openPool(t, pool.Config{Size: 1, Patience: brief})
		})
	}
}

func TestMembersOutwaitTheirPatience(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	y.fillPool(t, image, docker.Config{Guest: guestFiles(t), Pool: pool.Config{Size: 1, Patience: brief}})
	members := y.waiting(t)
	deadline := time.NewTimer(brief + brief/2)
	defer deadline.Stop()
	<-deadline.C // what this test is about
	for ref, state := range y.waiting(t) {
		if _, same := members[ref]; !same || state != "running" {
			t.Errorf("%s is %s; waiting before: %v", ref, state, members)
		}
	}
}

func hasRunning(states map[string]string) bool {
	for _, s := range states {
		if s == "running" {
			return true
		}
	}
	return false
}
