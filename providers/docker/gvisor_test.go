package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/client"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
)

// gvisor starts the engine that the tests of gVisor share: the one of the machine need not know runsc, which is the default
// of this one. Its network and platform are those that work anywhere.
//
//nolint:gochecknoglobals // one engine per run of the tests, which TestMain ends
var (
	gvisorStarted atomic.Bool
	gvisor        = sync.OnceValues(func() (*testenv.Engine, error) {
		program, err := exec.LookPath("runsc")
		if err != nil {
			return nil, fmt.Errorf("%w: run scripts/setup.sh test", err)
		}
		e, err := testenv.StartEngine(testenv.EngineOptions{Runtime: "runsc", Runtimes: map[string][]string{
			"runsc": {program, "--network=none", "--platform=ptrace"},
		}})
		if err != nil {
			return nil, err
		}
		if err := loadImage(e.Host); err != nil {
			e.Close()
			return nil, err
		}
		gvisorStarted.Store(true)
		return e, nil
	})
)

// loadImage gives the image of the machine's engine to another.
func loadImage(host string) error {
	ctx := context.Background()
	from, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer to.Close()
	saved, err := from.ImageSave(ctx, []string{image})
	if err != nil {
		return fmt.Errorf("save %s: %w", image, err)
	}
	defer saved.Close()
	loaded, err := to.ImageLoad(ctx, saved, client.ImageLoadWithQuiet(true))
	if err != nil {
		return fmt.Errorf("load %s: %w", image, err)
	}
	_, err = io.Copy(io.Discard, loaded.Body)
	return errors.Join(err, loaded.Body.Close())
}

// newGVisorYard is a yard on an engine that knows runsc.
func newGVisorYard(t testing.TB) *yard {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: an engine of one's own takes root")
	}
	e, err := gvisor()
	if err != nil {
		t.Fatalf("start an engine with gVisor: %v", err)
	}
	return newYardAt(t, e.Host)
}

// TestRuntime: sandboxes have the runtime that they name, or the configuration, or else the engine's default, and what that
// needs.
func TestRuntime(t *testing.T) {
	t.Parallel()
	y := newGVisorYard(t)
	host := readHost(t, "/proc/version")
	for _, c := range []struct {
		configured, named string
		gvisor            bool
	}{{"", "runsc", true}, {"", "runc", false}, {"", "", true}, {"runc", "", false}, {"runc", "runsc", true}} {
		p := y.openWith(t, docker.Config{Guest: guestFiles(t), Runtime: c.configured})
		spec := providers.Spec{ID: newID(), Image: image, Runtime: c.named, Resources: providers.Resources{Pids: 100}}
		testenv.Eventually(t, "the sandbox is made", func() bool { // gVisor on a busy machine may fail to load the guest
			_, err := p.Create(t.Context(), spec)
			if err != nil && providers.AsError(err).Class != providers.Unavailable {
				t.Fatal(err)
			}
			return err == nil
		})
		made, err := y.api.ContainerInspect(t.Context(), "sandyard-"+spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		if wide := *made.HostConfig.PidsLimit > 1000; wide != c.gvisor {
			t.Errorf("%+v: the control group may have %d threads", c, *made.HostConfig.PidsLimit)
		}
		if own := shell(t, open(t, p, spec.ID), "cat /proc/version") != host; own != c.gvisor {
			t.Errorf("%+v: the sandbox has a kernel of its own: %v", c, own)
		}
	}
}

// TestBuildUnderGVisor: steps run under the runtime that the configuration or the template says, and what they write and are
// given comes into the image.
func TestBuildUnderGVisor(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newGVisorYard(t)
	host := readHost(t, "/proc/version")
	for name, opened := range map[string]func() (*docker.Provider, string){
		"configured": func() (*docker.Provider, string) {
			return y.openWith(t, docker.Config{Guest: guestFiles(t), Runtime: "runsc"}), ""
		},
		"the template's": func() (*docker.Provider, string) { return y.open(t), "runsc" },
	} {
		p, runtime := opened()
		b := y.building(t, `cat /proc/version >kernel; cat /srv/given >>one; cat one`)
		b.Runtime, b.Resources.MemoryMB = runtime, 512
		b.Steps[1].Files = tarOf(t, "srv/given", "two\n")
		var log bytes.Buffer
		err := p.Build(t.Context(), b, &log)
		if err != nil && providers.AsError(err).Retryable() { // on a busy machine runsc cannot load the guest now and then
			t.Logf("%s: tried again: %v", name, err)
			err = p.Build(t.Context(), b, &log)
		}
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, log.String())
			continue
		}
		id := newID()
		if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: b.Image}); err != nil {
			t.Fatal(err)
		}
		got := shell(t, open(t, p, id), "cat /opt/one /opt/kernel; test -e /.sandyard-build && echo left; true")
		if !strings.HasPrefix(got, "one\ntwo\n") || strings.Contains(got, host) || strings.Contains(got, "left") {
			t.Errorf("%s: a sandbox of it says %q; the machine's kernel is %s", name, got, host)
		}
	}
}

// TestBuildOfARuntimeThatKeepsWrites: gVisor's later releases do, unless they are told not to.
func TestBuildOfARuntimeThatKeepsWrites(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newGVisorYard(t)
	x := newProxy(t, y.api.DaemonHost())
	x.standIn(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		asks := r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/archive")
		if asks {
			w.WriteHeader(http.StatusNotFound)
		}
		return asks
	})
	for _, runtime := range []string{"runsc", ""} { // named, and the engine's default
		p := y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t), Runtime: runtime})
		b := y.building(t, "true")
		err := p.Build(t.Context(), b, &bytes.Buffer{})
		if classOf(err) != providers.NotSupported || !strings.Contains(err.Error(), "--overlay2=none") {
			t.Errorf("the build: %v", err)
		}
		if _, err := p.Image(t.Context(), b.Image); classOf(err) != providers.ImageMissing {
			t.Errorf("there is an image all the same: %v", err)
		}
	}
}

func tarOf(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readHost(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
