package egress_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"sandyard/app"
	"sandyard/dev/testenv"
	"sandyard/providers/local"
)

const (
	image    = "sandyard/python:default"
	patience = time.Minute
)

// builder makes the guest's programs once; they prove nothing about binaries that lie around.
type builder struct {
	once sync.Once
	dir  string
	err  error
}

//nolint:gochecknoglobals // the one thing that all tests share, and a build is slow
var programs builder

func (b *builder) path(t testing.TB) string {
	t.Helper()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "sandyard-egress-"); b.err != nil {
			return
		}
		b.err = testenv.BuildPrograms(b.dir, "guest", "sup", "sandbox-shim")
	})
	if b.err != nil {
		t.Fatalf("build the guest: %v", b.err)
	}
	return b.dir
}

func (b *builder) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// runWorker is what a process of this program does that a rig starts as a worker.
func runWorker() int {
	c, err := app.Load[app.Worker]()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := app.RunWorker(ctx, c, app.NewLogger(os.Stderr, c.LogLevel)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// rig is an installation in the namespace: an API in this process and workers as processes, on one engine.
type rig struct {
	url      string
	edge     string // its door to the inside of sandboxes
	key      string
	settings map[string]string
	engine   *client.Client
	fleet    string
	http     *http.Client
}

// onProvider are a rig's settings for a provider.
func onProvider(t *testing.T, name string) []string {
	t.Helper()
	if name != "local" {
		return nil
	}
	if err := local.Probe(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	dir := t.TempDir()
	images, err := filepath.Abs("../../.sandyard/local/images")
	check(t, err)
	check(t, os.Symlink(images, filepath.Join(dir, "images")))
	if _, err := os.Stat(filepath.Join(images, url.QueryEscape(image))); err != nil {
		t.Fatalf("no image; run make tree first: %v", err)
	}
	return []string{"SANDBOX_PROVIDER", "local", "LOCAL_DIR", dir}
}

// newRig starts an installation. Settings (name, value, …) are added to the environment of its workers.
func newRig(t *testing.T, settings ...string) *rig {
	t.Helper()
	r := &rig{fleet: "egress-" + strings.ToLower(rand.Text()[:12]), http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	_, redis, _ := testenv.Redis(t)
	r.settings = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "DOCKER_HOST": os.Getenv("DOCKER_HOST"), "GUEST_PATH": programs.path(t),
		"DATABASE_URL": withHost(t, testenv.Database(t), ownHost), "REDIS_URL": (&url.URL{Scheme: "unix", Path: redis}).String(),
		"SANDYARD_FLEET": r.fleet, "HEALTH_ADDR": "127.0.0.1:0", "GATEWAY_ADDR": net.JoinHostPort(ownGateway, "0"), "POOL_SIZE": "0", "ENGINE_UNSAFE": "allow", "LEASE": "3s", roleVariable: roleWorker,
	}
	for i := 0; i+1 < len(settings); i += 2 {
		r.settings[settings[i]] = settings[i+1]
	}
	if r.settings["SANDBOX_PROVIDER"] != "local" {
		r.connectEngine(t)
	}
	r.serve(t)
	return r
}

// withHost adds a host to those of a database's URL, behind the one that answers.
func withHost(t *testing.T, dsn, host string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	check(t, err)
	query := u.Query()
	query.Set("host", query.Get("host")+","+host)
	u.RawQuery = query.Encode()
	return u.String()
}

func (r *rig) connectEngine(t *testing.T) {
	t.Helper()
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host := r.settings["DOCKER_HOST"]; host != "" {
		options = append(options, client.WithHost(host))
	}
	var err error
	if r.engine, err = client.NewClientWithOpts(options...); err != nil {
		t.Fatalf("no Docker engine, run make test: %v", err)
	}
	if _, err := r.engine.ImageInspect(t.Context(), image); err != nil {
		t.Fatalf("no Docker engine with the image %s, run make test: %v", image, err)
	}
	t.Cleanup(func() { r.clear(t) })
}

// clear removes what a failed test has left.
func (r *rig) clear(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	defer r.engine.Close()
	found, err := r.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+r.fleet))})
	if err != nil {
		t.Errorf("list containers: %v", err)
	}
	for _, c := range found {
		if err := r.engine.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Errorf("remove a container: %v", err)
		}
	}
}

// serve runs the API until the test ends.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := app.API{
		Common:    app.Common{DatabaseURL: r.settings["DATABASE_URL"], DatabaseConn: 8, RedisURL: r.settings["REDIS_URL"], Window: 256},
		Sandboxes: app.Sandboxes{Provider: "docker", Templates: map[string]string{"python": image}, Template: "python"},
		MaxBody:   64 << 20, Internet: true, Domain: "edge.test", Scheme: "http",
	}
	if p := r.settings["SANDBOX_PROVIDER"]; p != "" {
		c.Provider = p
	}
	if name := r.settings["SANDBOX_RUNTIMES"]; name != "" {
		c.Runtimes = []string{name}
	}
	log := slog.New(slog.DiscardHandler)
	parts, err := app.Connect(ctx, c.Common, log)
	check(t, err)
	check(t, parts.Store.Migrate(ctx, log))
	r.key, err = parts.Store.Bootstrap(ctx)
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	door, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r.url, r.edge = "http://"+l.Addr().String(), "http://"+door.Addr().String()
	served := make(chan error, 1)
	go func() {
		served <- app.ServeAPI(ctx, c, parts, app.Doors{API: l, Edge: door}, app.NewRegistry(), log)
	}()
	schedule, stopSchedule := context.WithCancel(ctx)
	scheduled := make(chan struct{})
	go func() {
		defer close(scheduled)
		app.Schedule(schedule, app.Scheduler{Common: c.Common, Sandboxes: c.Sandboxes}, parts, log)
	}()
	t.Cleanup(func() {
		stopSchedule()
		<-scheduled
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		parts.Close(log)
	})
}

// worker is a worker's process.
type worker struct {
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
}

// startWorker starts one and waits until it takes jobs. It is stopped in order when the test ends.
func (r *rig) startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{cmd: exec.Command("/proc/self/exe"), log: &lockedBuffer{}, done: make(chan struct{})}
	for name, value := range r.settings {
		if value != "" {
			w.cmd.Env = append(w.cmd.Env, name+"="+value)
		}
	}
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	check(t, w.cmd.Start())
	go func() {
		defer close(w.done)
		_ = w.cmd.Wait()
	}()
	t.Cleanup(func() {
		w.end(syscall.SIGTERM)
		if t.Failed() {
			s := w.log.String()
			t.Logf("the worker's log:\n%s", s[max(0, len(s)-16<<10):])
		}
	})
	testenv.Eventually(t, "the worker starts", func() bool { return strings.Contains(w.log.String(), "worker started") })
	return w
}

// end sends a signal and waits for the end that it brings.
func (w *worker) end(s os.Signal) {
	_ = w.cmd.Process.Signal(s)
	select {
	case <-w.done:
	case <-time.After(patience):
		_ = w.cmd.Process.Kill()
		<-w.done
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call makes a request and decodes its answer.
func (r *rig) call(t testing.TB, method, path string, body any) (status int, doc document) {
	t.Helper()
	text, err := json.Marshal(body)
	check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, bytes.NewReader(text))
	check(t, err)
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("X-API-Key", r.key)
	req.Header.Set("Content-Type", "application/json")
	answer, err := r.http.Do(req)
	check(t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	check(t, err)
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatalf("%s %s: %d %q", method, path, answer.StatusCode, raw)
		}
	}
	doc.raw = string(raw)
	return answer.StatusCode, doc
}

// document holds the fields of all the answers that the tests look at.
type document struct {
	Job struct {
		ID, State      string
		Error          *struct{ Code, Message string }
		Stdout, Stderr string
		Result         struct {
			ExitCode int `json:"exit_code"`
		}
	}
	Sandbox struct {
		ID, State string
		Network   bool
	}
	SandboxID       string
	EnvdAccessToken string
	Detail          string
	Connections     int64
	Denied          int64
	SentBytes       int64 `json:"sent_bytes"`
	ReceivedBytes   int64 `json:"received_bytes"`
	Denials         []struct {
		Target, Reason string
		Count          int64
	}

	raw string
}

type object map[string]any

// create makes a sandbox, which is deleted when the test ends.
func (r *rig) create(t testing.TB, wish object) string {
	t.Helper()
	status, doc := r.call(t, "POST", "/v1/sandboxes?wait=60s", wish)
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("create: %d %s", status, doc.raw)
	}
	t.Cleanup(func() { r.remove(t, doc.Sandbox.ID) })
	return doc.Sandbox.ID
}

func (r *rig) remove(t testing.TB, id string) {
	req, err := http.NewRequest("DELETE", r.url+"/v1/sandboxes/"+id+"?wait=60s&force=true", nil) //nolint:noctx // in a cleanup
	check(t, err)
	req.Header.Set("Authorization", "Bearer "+r.key)
	answer, err := r.http.Do(req)
	check(t, err)
	answer.Body.Close()
}

// setEgress changes a sandbox's policy.
func (r *rig) setEgress(t testing.TB, id string, policy object) {
	t.Helper()
	status, doc := r.call(t, "PUT", "/v1/sandboxes/"+id+"/egress?wait=60s", policy)
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("set egress: %d %s", status, doc.raw)
	}
}

// run runs a command and returns its output, both streams together, and exit code.
func (r *rig) run(t testing.TB, id, command string) (string, int) {
	t.Helper()
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/exec?wait=100s", object{"command": command, "timeout_seconds": 90})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("exec %s: %d %s", command, status, doc.raw)
	}
	return doc.Job.Stdout + doc.Job.Stderr, doc.Job.Result.ExitCode
}

// python runs a program and returns what it wrote.
func (r *rig) python(t testing.TB, id, program string) string {
	t.Helper()
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/exec?wait=100s", object{"argv": []string{"python3", "-c", program}, "timeout_seconds": 90})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("python: %d %s", status, doc.raw)
	}
	return strings.TrimSpace(doc.Job.Stdout + doc.Job.Stderr)
}
