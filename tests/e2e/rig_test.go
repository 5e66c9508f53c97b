package e2e_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
)

const (
	image = "sandyard/python:default"
	lease = 3 * time.Second
)

// rig is a whole installation: the three programs as processes, with servers and a fleet of their own. Its methods
// drive it as a client with the first API key.
type rig struct {
	*caller
	engine    *engine
	settings  map[string]string // environment of the programs
	hosts     map[string]*host  // of the programs that run on another
	api       *process
	worker    *process
	scheduler *process
	address   string // of the API
}

// newRig starts one of each program. Settings (name, value, …) are added to their environment.
func newRig(t *testing.T, settings ...string) *rig {
	t.Helper()
	r := prepare(t, settings...)
	r.startAll()
	return r
}

// prepare makes the rig without its processes.
func prepare(t *testing.T, settings ...string) *rig {
	t.Helper()
	r := &rig{settings: map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "DOCKER_HOST": os.Getenv("DOCKER_HOST"),
		"LISTEN_ADDR": "127.0.0.1:0", "HEALTH_ADDR": "127.0.0.1:0", "EDGE_ADDR": "127.0.0.1:0", "GATEWAY_ADDR": "127.0.0.1:0", "LEASE": lease.String(), "POOL_SIZE": "0", "WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
		"ENGINE_UNSAFE": "allow", "SANDBOX_IMAGES": "no/such:*,127.0.0.1:1/*",
	}}
	for _, name := range []string{"MAX_MEMORY_MB", "MAX_CPUS", "MAX_PIDS"} {
		r.settings[name] = "unlimited" // whatever machine the tests run on
	}
	r.settings["FIRST_KEY_FILE"] = filepath.Join(t.TempDir(), "first-key")
	r.settings["SANDBOX_TEMPLATES"] = "python=" + image
	for i := 0; i+1 < len(settings); i += 2 {
		r.settings[settings[i]] = settings[i+1]
	}
	templates, _, _ := strings.Cut(r.settings["SANDBOX_TEMPLATES"], ",")
	r.engine = newEngine(t, r.settings["DOCKER_HOST"], strings.TrimPrefix(templates, "python="))
	r.settings["SANDYARD_FLEET"] = cmp.Or(r.settings["SANDYARD_FLEET"], r.engine.fleet)
	if r.settings["DATABASE_URL"] == "" {
		r.settings["DATABASE_URL"] = testdb.New(t)
	}
	if r.settings["REDIS_URL"] == "" {
		_, addr, _ := testenv.Redis(t)
		r.settings["REDIS_URL"] = (&url.URL{Scheme: "unix", Path: addr}).String()
	}
	// Connections are not kept: the API's processes come and go.
	r.caller = &caller{t: t, url: func() string { return "http://" + r.address }, http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute,
	}}
	t.Cleanup(r.leftovers)
	return r
}

// startAll migrates the database, in which nothing is left to do for most tests, and starts the processes; the first
// start writes the first key.
func (r *rig) startAll() {
	r.t.Helper()
	migrate := startProcess(r.t, "", r.env(), "sandyard", "migrate")
	migrate.Await(time.Minute)
	if migrate.Err() != nil {
		r.t.Fatalf("migrate: %v", migrate.Err())
	}
	r.scheduler = r.start1("scheduler")
	r.worker = r.start1("worker")
	r.startAPI()
	key, err := os.ReadFile(r.settings["FIRST_KEY_FILE"])
	check(r.t, err)
	r.key = strings.TrimSpace(string(key))
}

// startAPI starts an API process at a free port and waits until it answers there.
func (r *rig) startAPI() {
	r.t.Helper()
	r.api = r.start1("api")
	var entry struct{ Addr string }
	decode(r.t, "{"+r.api.Line(&r.api.Stderr, `"msg":"API listens",`), &entry)
	r.address = entry.Addr
}

func (r *rig) start1(name string) *process {
	if h := r.hosts[name]; h != nil {
		return testenv.StartProcess(r.t, "", r.env(), name, h.command(program(r.t, name)))
	}
	return startProcess(r.t, "", r.env(), name)
}

// startWorker starts another worker, which from now on is the rig's.
func (r *rig) startWorker() {
	r.t.Helper()
	r.worker = r.start1("worker")
}

// each calls f on the three processes.
func (r *rig) each(f func(*process)) {
	for _, p := range []*process{r.api, r.worker, r.scheduler} {
		f(p)
	}
}

func (r *rig) env() []string {
	var env []string
	for name, value := range r.settings {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// leftovers fails the test if a container is left although every sandbox has ended, and removes what a failed test
// has left in any case. It runs after the processes have been stopped.
func (r *rig) leftovers() {
	left := r.engine.containers(r.t)
	if len(left) > 0 && !r.t.Failed() {
		r.t.Errorf("left on the engine at the end: %v", left)
	}
	r.engine.clear(r.t)
}

// clean deletes every sandbox that has not ended and checks that this leaves nothing on the engine.
func (r *rig) clean() {
	r.t.Helper()
	var page struct{ Sandboxes []sandbox }
	decode(r.t, r.call("GET", "/v1/sandboxes?limit=100", nil).want(r.t, 200).raw, &page)
	var live []string
	for _, b := range page.Sandboxes {
		if b.State != "deleted" && b.State != "failed" && b.State != "lost" {
			live = append(live, b.ID)
		}
	}
	r.remove(live...)
	if left := r.engine.containers(r.t); len(left) > 0 {
		r.t.Errorf("left on the engine after every delete: %v", left)
	}
}

// engine is the Docker engine, as far as it concerns one test's fleet.
type engine struct {
	fleet string
	api   *client.Client
}

// newEngine connects to the engine at host, empty = the machine's.
func newEngine(t testing.TB, host, image string) *engine {
	t.Helper()
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		t.Fatalf("no Docker engine, run make test: %v", err)
	}
	t.Cleanup(func() { api.Close() })
	if _, err := api.ImageInspect(t.Context(), image); err != nil {
		t.Fatalf("no Docker engine with the image %s, run make test: %v", image, err)
	}
	return &engine{fleet: "e2e-" + strings.ToLower(rand.Text()[:12]), api: api}
}

// containers lists those of the fleet, as name: state.
func (e *engine) containers(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, c := range e.list(t) {
		names = append(names, strings.Join(c.Names, ",")+": "+c.State)
	}
	return names
}

func (e *engine) list(t testing.TB) []container.Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := e.api.ContainerList(ctx, container.ListOptions{
		All:     true,
		Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+e.fleet)),
	})
	if err != nil {
		t.Fatalf("list containers: %v", err)
	}
	return found
}

func (e *engine) clear(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range e.list(t) {
		if err := e.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Errorf("remove a container left behind: %v", err)
		}
	}
}
