package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/providertest/fixture"
)

const image = "sandyard/python:default"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeUnusedGuests()
		if gvisorStarted.Load() {
			if e, err := gvisor(); err == nil {
				e.Close()
			}
		}
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
	names := []string{"guest", "sup"}
	if err := testenv.BuildPrograms(dir, names...); err != nil {
		return nil, err
	}
	for _, name := range names {
		binary, err := os.ReadFile(filepath.Join(dir, name))
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
	host  string // of the engine; empty = the machine's
	api   *client.Client
}

func newYard(t testing.TB) *yard {
	t.Helper()
	return newYardAt(t, "")
}

func newYardAt(t testing.TB, host string) *yard {
	t.Helper()
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{fleet: "test-" + rand.Text(), host: host, api: api}
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
		if err := y.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
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
	cfg.Fleet, cfg.Unsafe = y.fleet, true // a distribution's engine may be old
	if cfg.Host == "" {
		cfg.Host = y.host
	}
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

func shell(t testing.TB, box providers.Commands, script string) string {
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

func await(t testing.TB, reached func() bool) {
	t.Helper()
	testenv.Eventually(t, "the state that this line waits for", reached)
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

// pause pauses a sandbox, again where the machine was too busy for it, as a job does.
func pause(t *testing.T, p *docker.Provider, id string) {
	t.Helper()
	pauser, _ := fixture.Pauser(p)
	if err := pauser.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}
