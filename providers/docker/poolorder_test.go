package docker_test

import (
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
)

// TestCreatesComeFirst: while a sandbox is being made, no member of the pool is.
func TestCreatesComeFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	x := newProxy(t, y.api.DaemonHost())
	p := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t), StartConcurrency: 4, Pool: pool.Config{Size: 1}})
	begun, release := x.holdStart(t)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("create: %v", err)
	}
	if err := p.Ensure(t.Context(), image); err != nil { // now a member is lacking
		t.Fatal(err)
	}
	if p.RefillOnce(t.Context()) || p.Waiting() != 0 {
		t.Error("a member is made beside a create")
	}
	release()
	if err := <-ended; err != nil {
		t.Errorf("create: %v", err)
	}
	await(t, func() bool { return p.Waiting() == 1 })
}

// TestMemberThatHangsIsNotHandedOut: it runs, and does not answer.
func TestMemberThatHangsIsNotHandedOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 1, Patience: 2 * time.Minute}) // the claim is to find it out, not the upkeep
	var frozen string
	for ref := range y.waiting(t) {
		frozen = ref
	}
	testenv.PauseContainer(t, y.api.ContainerPause, frozen)
	id, box := create(t, p)
	if got := shell(t, box, "echo on"); got != "on" {
		t.Errorf("got %q", got)
	}
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if err != nil || found.ID == frozen {
		t.Errorf("the sandbox is %s, %v; the member that hangs was %s", found.ID, err, frozen)
	}
	await(t, func() bool {
		_, left := y.waiting(t)[frozen]
		return !left
	})
}

// TestOldMembersAreNotHandedOut, and are replaced.
func TestOldMembersAreNotHandedOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openPool(t, pool.Config{Size: 1, Patience: 2 * time.Minute})
	young := y.waiting(t)
	p.Age(59 * time.Minute)
	made, err := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
	if _, used := young[made.Ref]; err != nil || !used {
		t.Errorf("one that is not yet an hour old is not used: %+v, %v", made, err)
	}
	await(t, func() bool { return p.Waiting() == 1 })
	old := y.waiting(t)
	p.Age(time.Hour)
	made, err = p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
	if _, used := old[made.Ref]; err != nil || used {
		t.Errorf("one that is an hour old is handed out: %+v, %v", made, err)
	}
	await(t, func() bool {
		now := y.waiting(t)
		for ref := range old {
			if _, left := now[ref]; left {
				return false
			}
		}
		return p.Waiting() == 1
	})
}
