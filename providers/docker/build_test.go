package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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

// building is a build on the test's image, whose result goes with the test.
func (y *yard) building(t *testing.T, script string) providers.Build {
	t.Helper()
	name := "sandyard-test:" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		y.clear(t)
		_, _ = y.api.ImageRemove(context.Background(), name, dockerimage.RemoveOptions{Force: true}) // most are never made
	})
	return providers.Build{
		ID: newID(), Image: name, From: image, Resources: providers.Resources{CPUs: 1, MemoryMB: 256, DiskMB: 64, Pids: 64},
		Config: providers.ImageConfig{Env: map[string]string{"MADE": "here"}, User: "1000:1000", WorkDir: "/workspace"},
		Steps: []providers.Step{
			{Text: "first", Argv: []string{"sh", "-c", "mkdir -p /opt && echo one >/opt/one"}, User: "0:0", Dir: "/"},
			{Text: "second", Argv: []string{"sh", "-c", script}, User: "0:0", Dir: "/opt", Env: map[string]string{"NAME": "value"}},
		},
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	b := y.building(t, `id -u; pwd; echo "$NAME"; chown 1000:1000 one; ls /sys/class/net; grep CapEff /proc/self/status`)
	var log bytes.Buffer
	if err := p.Build(t.Context(), b, &log); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID, and nothing else.
	want := "Step 1/2 : first\nStep 2/2 : second\n0\n/opt\nvalue\nlo\nCapEff:\t00000000000000fb\n"
	if got := log.String(); got != want {
		t.Errorf("log %q, want %q", got, want)
	}
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: b.Image}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, open(t, p, id), `cat /opt/one; stat -c %u /opt/one; echo "$MADE"; id -u`); got != "one\n1000\nhere\n1000" {
		t.Errorf("a sandbox of it says %q", got)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("listed %+v, %v", found, err)
	}
	if names, err := p.Built(t.Context()); err != nil || len(names) != 1 || names[0] != b.Image {
		t.Errorf("built %v, %v", names, err)
	}
	if names, err := newYard(t).open(t).Built(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("another fleet's are %v, %v", names, err)
	}
	if err := p.RemoveImage(t.Context(), b.Image); err != nil {
		t.Errorf("remove in use: %v", err)
	}
	if got := shell(t, open(t, p, id), "cat /opt/one"); got != "one" {
		t.Errorf("the sandbox that uses it says %q", got)
	}
}

func TestBuildThatFails(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	for script, says := range map[string]string{
		"echo no such package >&2; exit 7":                "step 2 of 2 failed (second): it ended with exit code 7; its last output: no such package",
		"head -c 100000000 /dev/zero >/opt/big; sleep 60": "more than the 64 MB",
		"head -c 100000000 /dev/zero >/opt/big":           "more than the 64 MB",
		// A file without a name, and many that hold nothing.
		"exec 3>/opt/big; rm /opt/big; head -c 100000000 /dev/zero >&3; sleep 60": "more than the 64 MB",
		// A file that is only mapped.
		`python3 -c '
import ctypes, os, time
f = os.open("big", os.O_RDWR | os.O_CREAT)
os.truncate(f, 100 << 20)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, 100 << 20, 3, 1, f, 0)
os.unlink("big"), os.close(f)
for i in range(100): ctypes.memset(at + (i << 20), 1, 1 << 20)
time.sleep(60)'`: "more than the 64 MB",
		"mkdir /opt/many; cd /opt/many; seq 20000 | xargs touch; sleep 60":              "more than the 64 MB",
		"python3 -c 'import os\nfor i in range(200): os.mkdir(\"d\"); os.chdir(\"d\")'": "deeper than 128",
		"mount -t tmpfs none /mnt && exit 0; echo refused >&2; exit 1":                  "refused",
		"for i in $(seq 200); do sleep 60 & done; echo unlimited; true":                 "exit code",
	} {
		b := y.building(t, script)
		err := p.Build(t.Context(), b, &bytes.Buffer{})
		if classOf(err) != providers.BuildFailed || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", script, err, says)
		}
		if _, err := p.Image(t.Context(), b.Image); classOf(err) != providers.ImageMissing {
			t.Errorf("%s: there is an image all the same: %v", script, err)
		}
	}
	y.nothingLeft(t)
}

// TestBuildsHaveNoFileOfTheEngines: what the engine binds into a container's /etc lies on its disk, where nobody counts it.
func TestBuildsHaveNoFileOfTheEngines(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	for _, file := range []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"} {
		b := y.building(t, "head -c 100000 /dev/zero >"+file)
		if err := p.Build(t.Context(), b, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "Read-only file system") {
			t.Errorf("%s can be written to: %v", file, err)
		}
	}
}

func TestBuildThatIsCancelled(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := y.building(t, "echo running; sleep 3600")
	log := writer(func(text string) {
		if strings.Contains(text, "running") {
			cancel()
		}
	})
	if err := p.Build(ctx, b, log); err == nil || ctx.Err() == nil {
		t.Errorf("the build ended %v", err)
	}
	y.nothingLeft(t)
}

// TestBuildOnABusyMachine: where the engine is unable to freeze the build's container, the build asks again, and the
// image is what the steps left.
func TestBuildOnABusyMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	x := newProxy(t, y.api.DaemonHost())
	var pauses atomic.Int64
	x.standIn(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/pause") || pauses.Add(1) > 2 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"message":"Cannot pause container: OCI runtime pause failed: unable to freeze: unknown"}`)
		return true
	})
	p := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t)})
	b := y.building(t, "echo two >/opt/two")
	if err := p.Build(t.Context(), b, &bytes.Buffer{}); err != nil {
		t.Fatalf("after %d pauses: %v", pauses.Load(), err)
	}
	if pauses.Load() < 3 {
		t.Errorf("the container was frozen at try %d", pauses.Load())
	}
	y.nothingLeft(t)
}

// TestBuildBeginsAnew after a worker that died in the middle of it.
func TestBuildBeginsAnew(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	x := newProxy(t, y.api.DaemonHost())
	dying := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t)})
	b := y.building(t, "echo two >/opt/two")
	log := writer(func(text string) {
		if strings.Contains(text, "second") {
			x.cut()
		}
	})
	if err := dying.Build(t.Context(), b, log); err == nil {
		t.Fatal("the build has not noticed")
	}
	p := y.open(t)
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].ID != b.ID {
		t.Fatalf("left by the dead worker: %+v, %v", found, err)
	}
	if err := p.Build(t.Context(), b, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	y.nothingLeft(t)
}

// TestBuildKeepsNobodyFromStarting: where the engine starts one container at a time, a build that does not end holds up
// neither a create nor the pool.
func TestBuildKeepsNobodyFromStarting(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), StartConcurrency: 1, Pool: pool.Config{Size: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs, ended := make(chan struct{}), make(chan struct{})
	b := y.building(t, "echo running; sleep 3600")
	go func() {
		defer close(ended)
		_ = p.Build(ctx, b, writer(func(text string) {
			if strings.Contains(text, "running") {
				close(runs)
			}
		}))
	}()
	select {
	case <-runs:
	case <-ended:
		t.Fatal("the build has ended")
	}
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := p.Create(soon, providers.Spec{ID: newID(), Image: image}); err != nil {
		t.Errorf("create beside the build: %v", err)
	}
	if err := p.Ensure(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return p.Waiting() == 1 })
	select {
	case <-ended:
		t.Error("the build has ended meanwhile")
	default:
	}
	cancel()
	<-ended
}

// TestBuildsFetchNothing: where SANDBOX_PULL allows a worker to fetch images when it starts, the name that a build stands on
// still makes the engine connect to nobody.
func TestBuildsFetchNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	x := newProxy(t, y.api.DaemonHost())
	var pulls atomic.Int64
	x.standIn(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		pull := strings.HasSuffix(r.URL.Path, "/images/create")
		if pull {
			pulls.Add(1)
			w.WriteHeader(http.StatusNotFound)
		}
		return pull
	})
	p := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t), Pull: true})
	const stranger = "127.0.0.1:1/x:latest"
	if _, err := p.Image(t.Context(), stranger); classOf(err) != providers.ImageMissing || pulls.Load() != 0 {
		t.Errorf("the image is looked for with %d pulls: %v", pulls.Load(), err)
	}
	b := y.building(t, "true")
	b.From = stranger
	if err := p.Build(t.Context(), b, &bytes.Buffer{}); classOf(err) != providers.ImageMissing || pulls.Load() != 0 {
		t.Errorf("a build on it, with %d pulls: %v", pulls.Load(), err)
	}
	if err := p.Ensure(t.Context(), stranger); err == nil || pulls.Load() != 1 {
		t.Errorf("when a worker starts there were %d pulls: %v", pulls.Load(), err)
	}
}

func (y *yard) nothingLeft(t *testing.T) {
	t.Helper()
	found, err := y.api.ContainerList(context.Background(), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+y.fleet)),
	})
	if err != nil || len(found) != 0 {
		t.Errorf("left: %+v, %v", found, err)
	}
}

type writer func(text string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}
