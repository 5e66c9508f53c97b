//go:build attack

package attack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/jackc/pgx/v5"

	"sandyard/app"
	"sandyard/auth"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/vault"
)

const (
	image    = "sandyard/python:default"
	other    = "other" // the intruder's tenant
	patience = time.Minute
)

// rig is one installation with two tenants.
type rig struct {
	t         *testing.T
	dir       string
	env       []string
	fleet     string
	processes map[string]*testenv.Process
	api, edge string            // host and port
	health    map[string]string // of worker and scheduler
	dsn       string
	redis     string // socket
	parts     *app.Parts
	db        *pgx.Conn
	engine    *client.Client
	markers   *markers
	idle      latencies

	neighbour *neighbour
	intruder  *intruder
	routes    []route
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), fleet: "attack-" + strings.ToLower(rand.Text()[:12]), processes: map[string]*testenv.Process{},
		health: map[string]string{}, dsn: testenv.Database(t), markers: newMarkers(),
	}
	must(t, testenv.BuildPrograms(r.dir, "api", "worker", "scheduler", "sandyard", "guest", "sup"))
	_, r.redis, _ = testenv.Redis(t)
	r.env = append(environment(),
		"DATABASE_URL="+r.dsn, "REDIS_URL="+(&url.URL{Scheme: "unix", Path: r.redis}).String(), "SANDYARD_FLEET="+r.fleet,
		"SECRETS_KEY="+vault.NewKey(), "LISTEN_ADDR=127.0.0.1:0", "HEALTH_ADDR=127.0.0.1:0", "EDGE_ADDR=127.0.0.1:0", "GATEWAY_ADDR=127.0.0.1:0",
		"SANDBOX_TEMPLATES=python="+image+",base="+image, "POOL_SIZE=0", "LEASE=5s", "RECONCILE_EVERY=5s", "ENGINE_UNSAFE=allow",
	)
	r.connect()
	r.migrate()
	for _, program := range []string{"scheduler", "worker", "api"} {
		r.start(program)
	}
	r.tenants()
	r.routes = r.allRoutes()
	r.neighbour.settle()
	r.intruder.settle()
	r.idle = r.neighbour.alone()
	return r
}

// connect opens the test's own way to database and engine.
func (r *rig) connect() {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	r.parts, err = app.Connect(r.t.Context(), app.Common{DatabaseURL: r.dsn, DatabaseConn: 2, RedisURL: "unix://" + r.redis, Window: 256}, log)
	must(r.t, err)
	r.t.Cleanup(func() { r.parts.Close(log) })
	r.db, err = pgx.Connect(r.t.Context(), r.dsn)
	must(r.t, err)
	r.t.Cleanup(func() { r.db.Close(context.Background()) })
	r.engine, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	must(r.t, err)
	r.t.Cleanup(func() { r.engine.Close() })
	r.t.Cleanup(r.clearEngine)
}

func (r *rig) migrate() {
	r.t.Helper()
	p := testenv.StartProcess(r.t, r.dir, r.env, "migrate", r.program("sandyard", "migrate"))
	p.Await(patience)
	must(r.t, p.Err())
}

func (r *rig) program(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(r.dir, name), args...)
}

// start starts a program and waits until it works.
func (r *rig) start(program string) {
	r.t.Helper()
	p := testenv.StartProcess(r.t, r.dir, r.env, program, r.program(program))
	r.processes[program] = p
	if program != "api" {
		r.health[program] = r.address(p, "health checks and metrics are served")
		if program == "worker" {
			p.Line(&p.Stderr, `"msg":"worker started"`)
		}
		return
	}
	r.api, r.edge = r.address(p, "API listens"), r.address(p, "edge listens")
}

// address reads where a process listens from its log.
func (r *rig) address(p *testenv.Process, message string) string {
	r.t.Helper()
	var entry struct{ Addr string }
	must(r.t, json.Unmarshal([]byte("{"+p.Line(&p.Stderr, `"msg":"`+message+`",`)), &entry))
	return entry.Addr
}

const intruderPassword = "the intruder's"

// tenants makes the second tenant and a key of either, with the scope of everybody.
func (r *rig) tenants() {
	r.t.Helper()
	ctx := r.t.Context()
	_, err := r.db.Exec(ctx, "INSERT INTO tenants (id, name, webhook_secret) VALUES ($1, $1, 'whsec_b3RoZXI=')", other)
	must(r.t, err)
	scopes := []string{models.ScopeSandboxes, models.ScopeAdmin}
	first, err := r.parts.Store.CreateKey(ctx, "default", "neighbour", scopes)
	must(r.t, err)
	second, err := r.parts.Store.CreateKey(ctx, other, "intruder", scopes)
	must(r.t, err)
	hash, err := auth.HashPassword(intruderPassword)
	must(r.t, err)
	_, err = r.parts.Store.CreateUser(ctx, other, "intruder", hash, models.RoleAdmin)
	must(r.t, err)
	r.neighbour = &neighbour{caller: &caller{rig: r, key: first, http: newHTTP()}}
	r.intruder = &intruder{caller: &caller{rig: r, key: second, http: newHTTP()}}
	r.t.Cleanup(r.intruder.http.CloseIdleConnections)
	r.t.Cleanup(r.neighbour.http.CloseIdleConnections)
}

// newHTTP returns a client that undoes no encodings and follows nothing.
func newHTTP() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       2 * time.Minute,
	}
}

// refresh starts the processes again that an attack has ended.
func (r *rig) refresh(t *testing.T) {
	t.Helper()
	for program, p := range r.processes {
		if p.Ended() {
			r.start(program)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
