package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/providertest/hostile"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, fixture.Options{
		Image:  image,
		Script: fixture.Bash(),
		System: true,
		Limits: true,
	})
}

func TestHostile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	hostile.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, fixture.Options{
		Image:  image,
		System: true,
		Limits: true,
	})
}

func TestConformanceWithPool(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	shared := y.openPool(t, pool.Config{Size: 2})
	var opened sync.Map
	providertest.Run(t, func(t *testing.T) providers.Provider {
		t.Helper()
		if _, again := opened.LoadOrStore(t.Name(), true); again {
			return y.open(t) // only the first worker of a case makes sandboxes
		}
		await(t, func() bool { return shared.Waiting() > 0 })
		return shared
	}, fixture.Options{
		Image:  image,
		Script: fixture.Bash(),
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
	if free, err := a.DiskFree(t.Context()); err != nil || free <= 0 {
		t.Errorf("of its disk %d bytes are free: %v", free, err)
	}
	if err := a.Ensure(t.Context(), image); err != nil {
		t.Errorf("ensure: %v", err)
	}
	err := a.Ensure(t.Context(), "sandyard/none:none")
	if classOf(err) != providers.ImageMissing || !strings.Contains(err.Error(), "docker pull") {
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

func TestDialPort(t *testing.T) {
	t.Parallel()
	_, box := create(t, newYard(t).open(t))
	dialer, ok := box.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		t.Fatal("the sandbox reaches no ports")
	}
	if _, err := dialer.DialPort(t.Context(), 8000); classOf(err) != providers.Invalid {
		t.Errorf("dialling a port nobody listens on answers %v", err)
	}
	shell(t, box, "echo hello >index.html; setsid python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &")
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialPort(ctx, 8000)
	}}}
	defer web.CloseIdleConnections()
	var page []byte
	await(t, func() bool {
		answer, err := web.Get("http://sandbox/")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		page, err = io.ReadAll(answer.Body)
		return err == nil
	})
	if string(page) != "hello\n" {
		t.Errorf("got %q", page)
	}
}
