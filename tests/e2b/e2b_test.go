//go:build e2b

package e2b

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/app"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/providers/modal"
	"sandyard/providers/modal/modaltest"
	"sandyard/providers/runloop/runlooptest"
	"sandyard/vault"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testenv.Lasting()...) }

// patience bounds one suite.
const patience = 6 * time.Minute

// Documents of vendors.
const (
	e2bDocument     = "../../web/testdata/e2b/openapi.yml"
	envdDocument    = "../../web/testdata/e2b/envd.yaml"
	daytonaDocument = "../../web/testdata/daytona/operations.json"
)

func TestNode(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.holdE2B()
	s.drive("node", "suite.mjs", "js/suite.mjs")
}

func TestPython(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.holdE2B()
	s.drive("venv/bin/python", "suite.py", "python/suite.py")
}

// TestOlderPython: programs keep the client that they were written with.
func TestOlderPython(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.holdE2B()
	s.drive("older/bin/python", "older.py", "python/older.py")
}

// stack is an installation for one client.
type stack struct {
	t     *testing.T
	api   net.Listener
	edge  net.Listener
	open  net.Listener        // for clients without a key; nil = there is none
	over  *stack              // in which its sandboxes are made, by the provider e2b; nil = it has an engine
	cloud string              // the provider that does so in place of e2b; it has an engine, too
	devs  *runlooptest.Server // in which they are made, by the provider runloop; nil = they are not
	modal *modaltest.Server   // in which they are made, by the provider modal; nil = they are not
	fleet string              // its name, where it has one
	front string              // the URL of what stands before its API; empty = nothing does

	frontEdge string // the same before its edge

	maxBody int // MAX_BODY_BYTES; 0 = 1 MiB
	log     *lockedLog
	failed  string // the first lines of the cases that failed
	dsn     string // of its database

	store  *models.Store
	key    string // of the form that E2B's clients expect
	ownKey string // of Sandyard's own form, as README has it
}

func newStack(t *testing.T) *stack {
	t.Helper()
	return newStackAt(t, listen(t), listen(t), nil)
}

// newStackOf is an installation with other settings.
func newStackOf(t *testing.T, s *stack) *stack {
	t.Helper()
	s.t, s.api, s.edge, s.log = t, listen(t), listen(t), &lockedLog{}
	s.begin()
	return s
}

func newStackAt(t *testing.T, api, edge, open net.Listener) *stack {
	t.Helper()
	s := &stack{t: t, api: api, edge: edge, open: open, log: &lockedLog{}}
	s.begin()
	return s
}

func (s *stack) begin() {
	t := s.t
	t.Helper()
	log := slog.New(slog.NewJSONHandler(s.log, nil))
	_, socket, _ := testenv.Redis(t)
	s.dsn = testdb.New(t)
	common := app.Common{
		SecretsKey:  vault.NewKey(),
		DatabaseURL: s.dsn, DatabaseConn: 10, RedisURL: (&url.URL{Scheme: "unix", Path: socket}).String(), Window: 64,
	}
	parts, err := app.Connect(t.Context(), common, log)
	check(t, err)
	t.Cleanup(func() { parts.Close(log) })
	s.store = parts.Store
	_, err = parts.Store.Bootstrap(t.Context())
	check(t, err)
	s.key, err = parts.Store.CreateE2BKey(t.Context(), "default", "suite", []string{models.ScopeSandboxes})
	check(t, err)
	s.ownKey, err = parts.Store.CreateKey(t.Context(), "default", "readme", []string{models.ScopeSandboxes})
	check(t, err)
	s.run(common, parts, log)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the installation:\n%s", s.log)
			if s.failed != "" {
				t.Logf("what failed:\n%s", s.failed)
			}
		}
	})
}

// run starts the processes; the end of the test stops them, in order.
func (s *stack) run(common app.Common, parts *app.Parts, log *slog.Logger) {
	boxes := app.Sandboxes{
		Provider: "docker", Templates: map[string]string{"python": "sandyard/python:default"}, Template: "python", Images: []string{toolsImage},
	}
	_, port, err := net.SplitHostPort(s.edge.Addr().String())
	check(s.t, err)
	if s.over != nil {
		boxes.Provider, boxes.Templates = "e2b", map[string]string{"python": "base"}
	}
	if s.cloud != "" {
		boxes.Provider, boxes.Offered = s.cloud, []string{s.cloud, "docker"}
		boxes.Templates = map[string]string{"python": "sandyard/python:default"}
	}
	if s.devs != nil {
		boxes.Provider = "runloop"
	}
	if s.modal != nil {
		boxes.Provider, boxes.Templates = "modal", map[string]string{"python": modal.DefaultImage}
	}
	api := app.API{Common: common, Sandboxes: boxes, Domain: "localhost:" + port, MaxBody: cmp.Or(s.maxBody, 1<<20)}
	if s.open != nil {
		api.KeylessTenant = "default"
	}
	worker := app.Worker{
		Unsafe: "allow",
		Common: common, Sandboxes: boxes, Fleet: cmp.Or(s.fleet, "e2b-"+strings.ToLower(rand.Text()[:12])), Guest: guest(s.t),
		Gateway: "127.0.0.1:0", Slots: 16, MaxSandboxes: 50, Lease: 10 * time.Second,
	}
	if s.over != nil {
		worker.E2B = app.E2B{
			E2BKey: s.over.key, E2BURL: s.over.apiURL(), E2BSandbox: s.over.edgeURL(),
		}
	}
	if s.devs != nil {
		worker.Runloop = app.Runloop{RunloopKey: s.devs.Key, RunloopURL: s.devs.URL, RunloopTunnel: s.devs.TunnelURL}
	}
	if s.modal != nil {
		worker.Modal = app.Modal{ModalID: s.modal.TokenID, ModalSecret: s.modal.TokenSecret, ModalServer: s.modal.URL}
	}
	if s.cloud != "" {
		worker.Daytona = app.Daytona{DaytonaKey: s.over.ownKey, DaytonaURL: "http://" + s.over.api.Addr().String() + "/daytona/api"}
		worker.Reconcile, worker.Patience = time.Second, 2*time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	start := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				s.t.Error(err)
			}
		})
	}
	registry := app.NewRegistry()
	start(func() error {
		return app.ServeAPI(ctx, api, parts, app.Doors{API: s.api, Edge: s.edge, Keyless: s.open}, registry, log)
	})
	start(func() error { return app.Work(ctx, worker, parts, registry, log) })
	start(func() error {
		app.Schedule(ctx, app.Scheduler{Common: common, Sandboxes: boxes}, parts, log)
		return nil
	})
	s.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	s.t.Cleanup(func() { s.emptied(parts) })
}

// emptied waits until the last sandbox has ended. Whatever a failed suite leaves has a timeout of its own.
func (s *stack) emptied(parts *app.Parts) {
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		live, err := parts.Store.LiveSandboxes(context.Background(), 100)
		if err != nil || len(live) == 0 {
			check(s.t, err)
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			s.t.Errorf("%d sandboxes live on after the suite, the first is %s: %s", len(live), live[0].ID, live[0].State)
			return
		}
	}
}

// drive runs a suite against the installation.
func (s *stack) drive(program, name, suite string, args ...string) {
	s.t.Helper()
	s.failed += drive(s.t, s.env(s.key), program, name, suite, args...)
}

// drive runs a suite from the directory where the clients are installed, and returns what failed, a line each.
func drive(t *testing.T, env []string, program, name, suite string, args ...string) (failed string) {
	t.Helper()
	dir := clients(t)
	text, err := os.ReadFile(suite)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	if path := filepath.Join(dir, program); strings.Contains(program, "/") {
		program = path
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{name}, args...)...)
	cmd.Dir = dir
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", name, out)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "FAIL") {
				failed += line
			}
		}
	}
	return failed
}

// clients is the directory where the clients are installed.
func clients(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("E2B_CLIENTS")
	if dir == "" {
		t.Fatal("E2B_CLIENTS is not set to the directory with the clients: run make e2b")
	}
	return dir
}

// apiURL and edgeURL are where clients reach the installation.
func (s *stack) apiURL() string  { return cmp.Or(s.front, "http://"+s.api.Addr().String()) }
func (s *stack) edgeURL() string { return cmp.Or(s.frontEdge, "http://"+s.edge.Addr().String()) }

// env is what leads a client to the installation.
func (s *stack) env(key string) []string {
	api := s.apiURL()
	return append(os.Environ(),
		"MCP_URL="+api+"/mcp", "MCP_KEY="+key,
		"E2B_API_URL="+api, "E2B_API_KEY="+key, "E2B_SANDBOX_URL="+s.edgeURL(),
		"DAYTONA_API_URL="+api+"/daytona/api", "DAYTONA_API_KEY="+key)
}

// guest builds the programs that go into every sandbox.
func guest(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check(t, testenv.BuildPrograms(dir, "guest", "sup"))
	return dir
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lockedLog keeps what is logged.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
