package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/providertest"
)

const image = "sandyard/python:default"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeUnusedGuests()
		os.Exit(code)
	}))
}

// removeUnusedGuests removes the volume of the guest that was built for this run, unless somebody else uses it.
func removeUnusedGuests() {
	files, err := guest()
	if err != nil {
		return
	}
	p, err := docker.New(context.Background(), docker.Config{Fleet: "test", Guest: files})
	if err != nil {
		return
	}
	defer p.Close()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return
	}
	defer api.Close()
	_ = api.VolumeRemove(context.Background(), p.GuestVolume(), false)
}

// guest builds the guest once per run of the tests; they prove nothing about a binary that lies around.
//
//nolint:gochecknoglobals // the one value all tests share, and a build is slow
var guest = sync.OnceValues(func() (fstest.MapFS, error) {
	dir, err := os.MkdirTemp("", "sandyard-guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	files := make(fstest.MapFS)
	for name, from := range map[string]string{"guest": "sandyard/cmd/guest", "sup": "sandyard/cmd/guest-sup"} {
		path := filepath.Join(dir, name)
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, from)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, errors.New(string(out))
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[name] = &fstest.MapFile{Data: binary}
	}
	return files, nil
})

func guestFiles(t testing.TB) fstest.MapFS {
	t.Helper()
	files, err := guest()
	if err != nil {
		t.Fatalf("build the guest: %v", err)
	}
	return maps.Clone(files)
}

// yard is a fleet of one test, of which nothing remains after it.
type yard struct {
	fleet string
	api   *client.Client
}

func newYard(t testing.TB) *yard {
	t.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{fleet: "test-" + rand.Text(), api: api}
	t.Cleanup(func() {
		y.clear(t)
		_ = api.Close()
	})
	if _, err := api.ImageInspect(t.Context(), image); err != nil {
		t.Fatalf("no image %s; run make image first: %v", image, err)
	}
	return y
}

func (y *yard) clear(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	found, err := y.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+y.fleet))})
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, c := range found {
		if err := y.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove %v: %v", c.Names, err)
		}
	}
}

func (y *yard) open(t testing.TB) *docker.Provider {
	t.Helper()
	return y.openWith(t, docker.Config{Guest: guestFiles(t)})
}

func (y *yard) openWith(t testing.TB, cfg docker.Config) *docker.Provider {
	t.Helper()
	cfg.Fleet = y.fleet
	p, err := docker.New(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func newID() string { return "t" + strings.ToLower(rand.Text()) }

func create(t testing.TB, p *docker.Provider) (string, providers.Sandbox) {
	t.Helper()
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
		t.Fatalf("create: %v", err)
	}
	return id, open(t, p, id)
}

func open(t testing.TB, p *docker.Provider, id string) providers.Sandbox {
	t.Helper()
	box, err := p.Open(t.Context(), id)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return box
}

func shell(t *testing.T, box providers.Commands, script string) string {
	t.Helper()
	res, err := box.Run(t.Context(), providers.Command{Name: newID(), Shell: script, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("run %q: %v", script, err)
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
}

func classOf(err error) providers.Class {
	if err == nil {
		return ""
	}
	return providers.AsError(err).Class
}

func TestConformance(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, providertest.Options{
		Image:  image,
		Script: providertest.Bash(),
		System: true,
		Limits: true,
	})
}

func TestEngine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	a, b := y.open(t), y.open(t)
	idA, errA := a.EngineID(t.Context())
	idB, errB := b.EngineID(t.Context())
	if errA != nil || errB != nil || idA == "" || idA != idB {
		t.Errorf("two workers see the engine as %q (%v) and %q (%v)", idA, errA, idB, errB)
	}
	if err := a.Ensure(t.Context(), image); err != nil {
		t.Errorf("ensure: %v", err)
	}
	err := a.Ensure(t.Context(), "sandyard/none:none")
	if classOf(err) != providers.ImageMissing || !strings.Contains(err.Error(), "make image") {
		t.Errorf("ensure of what is missing answers %v", err)
	}
}

func TestNoEngine(t *testing.T) {
	t.Parallel()
	_, err := docker.New(t.Context(), docker.Config{Fleet: "f", Host: "unix://" + filepath.Join(t.TempDir(), "none.sock"), Guest: fstest.MapFS{"guest": {}}})
	if classOf(err) != providers.Unavailable {
		t.Errorf("got %v, want class %s", err, providers.Unavailable)
	}
}

func TestOtherFleetsAreLeftAlone(t *testing.T) {
	t.Parallel()
	mine, theirs := newYard(t).open(t), newYard(t).open(t)
	id, _ := create(t, theirs)
	if _, err := mine.Open(t.Context(), id); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("open answers %v", err)
	}
	if _, err := mine.Create(t.Context(), providers.Spec{ID: id, Image: image}); err == nil {
		t.Error("create adopted another fleet's sandbox")
	}
	if err := mine.Delete(t.Context(), id); err != nil {
		t.Errorf("delete: %v", err)
	}
	if found, err := mine.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("listed %v, %v", found, err)
	}
	if found, err := theirs.List(t.Context()); err != nil || len(found) != 1 || found[0].State != providers.StateRunning {
		t.Errorf("the other fleet has %v, %v", found, err)
	}
}

func TestDeleteWaitsForACancelledCreate(t *testing.T) {
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

func await(t *testing.T, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatal("not reached in time")
		}
		<-tick.C
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

// copyContainer makes, and does not start, a container like the sandbox model's for the sandbox id.
func (y *yard) copyContainer(t *testing.T, model, id string, entrypoint []string) {
	t.Helper()
	like, err := y.api.ContainerInspect(t.Context(), "sandyard-"+model)
	if err != nil {
		t.Fatal(err)
	}
	like.Config.Labels["sandyard.sandbox"] = id
	like.Config.Hostname = ""
	if entrypoint != nil {
		like.Config.Entrypoint = entrypoint
	}
	if _, err := y.api.ContainerCreate(t.Context(), like.Config, like.HostConfig, nil, nil, "sandyard-"+id); err != nil {
		t.Fatal(err)
	}
}

func TestSilentGuestLosesItsContainer(t *testing.T) {
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

func TestBrokenGuestLeavesNothing(t *testing.T) {
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

// ownGuest is the guest with bytes after its end, which change nothing but the name of its volume.
func ownGuest(t testing.TB) fstest.MapFS {
	t.Helper()
	files := guestFiles(t)
	own := append(bytes.Clone(files["guest"].Data), rand.Text()...)
	files["guest"] = &fstest.MapFile{Data: own}
	return files
}

// removeVolumes removes the guest volume of p, after its containers.
func (y *yard) removeVolumes(t *testing.T, p *docker.Provider) {
	t.Helper()
	if err := y.api.VolumeRemove(context.Background(), p.GuestVolume(), true); err != nil {
		t.Errorf("remove volume: %v", err)
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

func TestPausedTimeDoesNotCount(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	id, box := create(t, p)
	type answer struct {
		res providers.Result
		err error
	}
	ended := make(chan answer, 1)
	cmd := providers.Command{Name: "job", Shell: "for i in $(seq 10); do echo $i >>begun; sleep 0.1; done; echo end", Timeout: 4 * time.Second}
	go func() {
		res, err := box.Run(t.Context(), cmd)
		ended <- answer{res, err}
	}()
	await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
	if err := p.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-ended:
		t.Fatalf("the run ended with the pause: %+v, %v", a.res, a.err)
	case <-time.After(cmd.Timeout + time.Second):
	}
	if err := p.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if a := <-ended; a.err != nil || a.res.TimedOut || string(a.res.Stdout) != "end\n" {
		t.Errorf("got %+v, %v; want its whole output", a.res, a.err)
	}
}

func TestHungGuestIsEnded(t *testing.T) {
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

func TestWorkDirectory(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image, WorkDir: "/data/my work"}); err != nil {
		t.Fatal(err)
	}
	box := open(t, p, id)
	if info, err := box.WriteFile(t.Context(), "sub/f", []byte("x"), 0); err != nil || info.Path != "/data/my work/sub/f" {
		t.Errorf("write: %+v, %v", info, err)
	}
	if got := shell(t, box, `pwd; echo "$HOME"; cat sub/f`); got != "/data/my work\n/data/my work\nx" {
		t.Errorf("got %q", got)
	}
	for _, dir := range []string{"/", "/usr", "/proc/x", "/tmp", "/.sandyard", "/a/../etc", "/a:b", "rel"} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image, WorkDir: dir}); classOf(err) != providers.Invalid {
			t.Errorf("work directory %q: %v, want class %s", dir, err, providers.Invalid)
		}
	}
}

func TestVolumesOfAnImageAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	model, _ := create(t, p)
	name := "sandyard-test:" + strings.ToLower(rand.Text())
	_, err := y.api.ContainerCommit(t.Context(), "sandyard-"+model, container.CommitOptions{Reference: name, Changes: []string{"VOLUME /data", "VOLUME /workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		y.clear(t)
		if _, err := y.api.ImageRemove(context.Background(), name, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: name}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, open(t, p, id), `stat -f -c %T /data /workspace; echo x >/data/f && cat /data/f`); got != "tmpfs\ntmpfs\nx" {
		t.Errorf("got %q", got)
	}
	found, err := y.api.ContainerInspect(t.Context(), "sandyard-"+id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found.Mounts {
		if m.Type == mount.TypeVolume && m.Name != p.GuestVolume() {
			t.Errorf("the engine made volume %s for %s", m.Name, m.Destination)
		}
	}
}
