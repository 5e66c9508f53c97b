package docker_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/dev/testenv"
	"sandyard/providers"
)

func TestDeleteWaitsForACancelledCreate(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			p := newYard(t).open(t)
			id := newID()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := p.Create(ctx, providers.Spec{ID: id, Image: image})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("create answers %v", err)
			}
			if err := p.Delete(t.Context(), id); err != nil {
				t.Errorf("delete: %v", err)
			}
			// A create that the delete did not wait for would show up in far less than this.
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range 30 {
				<-tick.C
				if found, err := p.List(t.Context()); err != nil || len(found) != 0 {
					t.Fatalf("left %+v, %v", found, err)
				}
			}
		})
	}
}

func TestContainerKilledBehindOurBack(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	id, box := create(t, p)
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(t.Context(), providers.Command{Name: "long", Shell: "touch begun; sleep 600"})
		ended <- err
	}()
	await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
	if err := y.api.ContainerKill(t.Context(), "sandyard-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrLost) {
		t.Errorf("the command's run answers %v, want ErrLost", err)
	}
	if _, err := p.Open(t.Context(), id); !errors.Is(err, providers.ErrLost) {
		t.Errorf("open answers %v, want ErrLost", err)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].State != providers.StateStopped {
		t.Errorf("listed %+v, %v; want it stopped", found, err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
		t.Fatalf("create anew: %v", err)
	}
	if got := shell(t, open(t, p, id), "ls; echo new"); got != "new" {
		t.Errorf("the new sandbox holds %q", got)
	}
}

func TestHalfMadeContainerIsAdopted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	model, _ := create(t, p)
	id := newID()
	y.copyContainer(t, model, id, nil)
	if _, err := p.Open(t.Context(), id); classOf(err) != providers.Busy {
		t.Errorf("open of a half-made sandbox answers %v", err)
	}
	made, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image})
	if err != nil || made.State != providers.StateRunning {
		t.Fatalf("create: %+v, %v", made, err)
	}
	if got := shell(t, open(t, p, id), "echo on"); got != "on" {
		t.Errorf("got %q", got)
	}
}

func TestSilentGuestLosesItsContainer(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	model, _ := create(t, p)
	id := newID()
	y.copyContainer(t, model, id, []string{"sleep", "600"})
	if err := y.api.ContainerStart(t.Context(), "sandyard-"+id, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), id); !errors.Is(err, providers.ErrLost) {
		t.Errorf("open answers %v, want ErrLost", err)
	}
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if err != nil || found.State.Running {
		t.Errorf("the container runs on: %+v, %v", found.State, err)
	}
}

// TestOpenJustAfterAResume does not believe an engine that calls the sandbox paused for a moment, and a pause then pauses it.
func TestOpenJustAfterAResume(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	id, _ := create(t, p)
	pause(t, p, id)
	if err := p.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	name := "sandyard-" + id
	testenv.PauseContainer(t, y.api.ContainerPause, name)
	over := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { over <- y.api.ContainerUnpause(context.Background(), name) })
	if _, err := p.Open(t.Context(), id); err != nil {
		t.Errorf("open answers %v", err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	pause(t, p, id)
	if _, err := p.Open(t.Context(), id); !errors.Is(err, providers.ErrPaused) {
		t.Errorf("after a pause open answers %v", err)
	}
}

func TestHungGuestIsEnded(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	id, box := create(t, p)
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing inside the sandbox can stop its first process, so it takes root on the engine's own machine.
	if err := syscall.Kill(found.State.Pid, syscall.SIGSTOP); err != nil {
		t.Skipf("skipped: cannot stop process %d of the engine's machine: %v", found.State.Pid, err)
	}
	_, err = box.Run(t.Context(), providers.Command{Name: "job", Shell: "true", Timeout: time.Minute})
	if !errors.Is(err, providers.ErrLost) {
		t.Errorf("run under a hung guest answers %v, want ErrLost", err)
	}
	now, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if err != nil || now.State.Running {
		t.Errorf("the container runs on: %+v, %v", now.State, err)
	}
}
