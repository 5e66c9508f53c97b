// Package jobsrig is a whole queue for tests: a store, a Redis, a client, workers and schedulers, each of which a test
// can have more than one of, over the fake provider.
package jobsrig

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// Rig is a whole queue on servers of its own, with the fake provider behind it.
type Rig struct {
	T       testing.TB
	Store   *models.Store
	DSN     string
	Redis   *redis.Options
	RDB     *redis.Client
	Queue   *queue.Queue
	Client  *jobs.Client
	Waiters *queue.Waiters
	Hooks   *webhook.Sender
	State   *fake.State
	Log     *slog.Logger
}

// Tenant is the tests' tenant.
const Tenant = "default"

// New is a rig on a database of its own.
func New(t testing.TB) *Rig {
	t.Helper()
	return NewOn(t, testdb.New(t))
}

// NewOn is a rig on a migrated database.
func NewOn(t testing.TB, dsn string) *Rig {
	t.Helper()
	network, addr, db := testenv.Redis(t)
	r := &Rig{
		T: t, DSN: dsn, Redis: &redis.Options{Network: network, Addr: addr, DB: db}, State: fake.NewState(),
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	r.RDB = queue.NewRedis(r.Redis)
	var err error
	r.Store, err = models.Open(t.Context(), r.DSN, 8, models.Limits{Window: 64})
	r.Must(err)
	_, err = r.Store.Bootstrap(t.Context())
	r.Must(err)
	r.Queue = queue.NewQueue(r.RDB, r.Log)
	r.Queue.Wait(testenv.Patience())
	r.Client = jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python",
		Templates: map[string]string{"python": "fake"}, Callbacks: Loopback(),
	}, r.Log)
	r.Waiters = queue.NewWaiters(t.Context(), r.Store, r.RDB)
	r.Hooks = webhook.New(r.Store, r.Queue, Loopback(), r.Log)
	t.Cleanup(func() {
		r.State.Close()
		r.Hooks.Close()
		r.Must(r.Waiters.Close())
		r.Queue.Close()
		r.Must(r.RDB.Close())
		r.Must(r.Store.Close())
	})
	return r
}

// Wire returns a store for a worker whose connections to PostgreSQL can be broken. The rig's own go on.
func (r *Rig) Wire() (*faultproxy.Proxy, func(*worker.Config)) {
	r.T.Helper()
	proxy, dsn := faultproxy.Postgres(r.T, r.DSN)
	store, err := models.Open(r.T.Context(), dsn, 8, models.Limits{Window: 64})
	r.Must(err)
	r.T.Cleanup(func() {
		proxy.On(nil)
		proxy.Back()
		r.Must(store.Close())
	})
	return proxy, func(c *worker.Config) { c.Store = store }
}

// Loopback is where the tests' receivers of webhooks listen.
func Loopback() netguard.Rules {
	return netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// Must ends the test at an error.
func (r *Rig) Must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Worker starts another worker on the rig's backend.
func (r *Rig) Worker(slots int, change ...func(*worker.Config)) *worker.Worker {
	r.T.Helper()
	return r.WorkerOn(r.State, slots, change...)
}

// WorkerOn starts a worker on some backend, which is an engine of its own unless change says otherwise.
func (r *Rig) WorkerOn(state *fake.State, slots int, change ...func(*worker.Config)) *worker.Worker {
	r.T.Helper()
	return r.WorkerWith(fake.New(fake.Options{State: state, PerNode: true}), slots, change...)
}

// WorkerWith starts a worker with a provider of its own.
func (r *Rig) WorkerWith(p providers.Provider, slots int, change ...func(*worker.Config)) *worker.Worker {
	r.T.Helper()
	c := worker.Config{
		Store:    r.Store,
		Redis:    r.Redis,
		Images:   []string{"*"},
		Provider: p,
		Engine:   "engine",
		Slots:    slots,
		Lease:    10 * time.Second,
		Grace:    5 * time.Second,
		Webhooks: r.Hooks,
		Metrics:  worker.NewMetrics(prometheus.NewRegistry()),
		Log:      r.Log,
	}
	for _, f := range change {
		f(&c)
	}
	w := worker.New(c)
	r.Must(w.Start(r.T.Context()))
	r.T.Cleanup(func() {
		w.Stop(context.Background())
		r.Must(p.Close())
	})
	return w
}

// Scheduler starts a scheduler.
func (r *Rig) Scheduler(change ...func(*scheduler.Config)) *scheduler.Scheduler {
	c := scheduler.Config{
		Store:    r.Store,
		Client:   r.Client,
		Queue:    r.Queue,
		Webhooks: r.Hooks,
		Steady:   time.Millisecond,
		Log:      r.Log,
	}
	for _, f := range change {
		f(&c)
	}
	s := scheduler.New(c)
	s.Start(r.T.Context())
	r.T.Cleanup(s.Stop)
	return s
}

// Options are those of a submission by the tests' tenant.
func Options() jobs.Options { return jobs.Options{TenantID: Tenant, Actor: "test"} }

// Create submits a sandbox and returns its id and its create job's.
func (r *Rig) Create(wish jobs.CreateSandbox) (sandbox, job string) {
	r.T.Helper()
	out, err := r.Client.Create(r.T.Context(), wish, Options())
	r.Must(err)
	return out.Sandbox.ID, out.Jobs[0].ID
}

// Submit submits a job and returns its id.
func (r *Rig) Submit(sandbox string, args kind.Args, o jobs.Options) string {
	r.T.Helper()
	out, err := r.Client.Submit(r.T.Context(), sandbox, args, o)
	r.Must(err)
	return out.Jobs[0].ID
}

// Exec submits a command and returns its job.
func (r *Rig) Exec(sandbox, script string) string {
	r.T.Helper()
	return r.Submit(sandbox, &kind.Exec{Command: script}, Options())
}

// Wait returns the job when it has ended.
func (r *Rig) Wait(job string) models.Job {
	r.T.Helper()
	j, err := r.Waiters.Wait(r.T.Context(), Tenant, job, testenv.Patience())
	r.Must(err)
	if !j.State.Terminal() {
		r.T.Fatalf("job %s (%s) is still %s after %v", j.ID, j.Kind, j.State, testenv.Patience())
	}
	return j
}

// Eventually waits for a condition that no notice tells of.
func (r *Rig) Eventually(what string, ok func() bool) {
	r.T.Helper()
	testenv.Eventually(r.T, what, ok)
}

// Sandbox reads a sandbox.
func (r *Rig) Sandbox(id string) models.Sandbox {
	r.T.Helper()
	b, err := r.Store.Sandbox(r.T.Context(), Tenant, id)
	r.Must(err)
	return b
}

// Job reads a job.
func (r *Rig) Job(id string) models.Job {
	r.T.Helper()
	j, err := r.Store.Job(r.T.Context(), Tenant, id)
	r.Must(err)
	return j
}

// SQL runs a statement on the rig's database.
func (r *Rig) SQL(statement string, args ...any) {
	r.T.Helper()
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	defer conn.Close(context.WithoutCancel(r.T.Context()))
	_, err = conn.Exec(r.T.Context(), statement, args...)
	r.Must(err)
}
