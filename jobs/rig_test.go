package jobs_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers/fake"
)

// rig is a whole queue on servers of its own, with the fake provider behind it.
type rig struct {
	t       testing.TB
	store   *models.Store
	dsn     string
	redis   *redis.Options
	rdb     *redis.Client
	queue   *queue.Queue
	client  *jobs.Client
	waiters *queue.Waiters
	hooks   *webhook.Sender
	state   *fake.State
	log     *slog.Logger
}

const tenant = "default"

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, testenv.Database(t))
}

// newRigOn is a rig on an empty database.
func newRigOn(t testing.TB, dsn string) *rig {
	t.Helper()
	network, addr, db := testenv.Redis(t)
	r := &rig{
		t: t, dsn: dsn, redis: &redis.Options{Network: network, Addr: addr, DB: db}, state: fake.NewState(),
		log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	r.rdb = queue.NewRedis(r.redis)
	var err error
	r.store, err = models.Open(t.Context(), r.dsn, 16, models.Limits{Window: 64})
	r.must(err)
	r.must(r.store.Migrate(t.Context(), r.log))
	_, err = r.store.Bootstrap(t.Context())
	r.must(err)
	r.queue = queue.NewQueue(r.rdb, r.log)
	r.client = jobs.NewClient(r.store, r.queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python",
		Templates: map[string]string{"python": "fake"}, Callbacks: loopback(),
	}, r.log)
	r.waiters = queue.NewWaiters(t.Context(), r.store, r.rdb)
	r.hooks = webhook.New(r.store, r.queue, loopback(), r.log)
	t.Cleanup(func() {
		r.state.Close()
		r.hooks.Close()
		r.must(r.waiters.Close())
		r.queue.Close()
		r.must(r.rdb.Close())
		r.must(r.store.Close())
	})
	return r
}

// wire returns a store for a worker whose connections to PostgreSQL can be broken. The rig's own go on.
func (r *rig) wire() (*faultproxy.Proxy, func(*worker.Config)) {
	r.t.Helper()
	proxy, dsn := faultproxy.Postgres(r.t, r.dsn)
	store, err := models.Open(r.t.Context(), dsn, 8, models.Limits{Window: 64})
	r.must(err)
	r.t.Cleanup(func() {
		proxy.On(nil)
		proxy.Back()
		r.must(store.Close())
	})
	return proxy, func(c *worker.Config) { c.Store = store }
}

// loopback is where the tests' receivers of webhooks listen.
func loopback() netguard.Rules {
	return netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// worker starts another worker on the rig's backend.
func (r *rig) worker(slots int, change ...func(*worker.Config)) *worker.Worker {
	r.t.Helper()
	return r.workerOn(r.state, slots, change...)
}

// workerOn starts a worker on some backend, which is an engine of its own unless change says otherwise.
func (r *rig) workerOn(state *fake.State, slots int, change ...func(*worker.Config)) *worker.Worker {
	r.t.Helper()
	p := fake.New(fake.Options{State: state, PerNode: true})
	c := worker.Config{
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: p, Engine: "engine", Slots: slots,
		Lease: 10 * time.Second, Grace: 5 * time.Second, Webhooks: r.hooks, Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: r.log,
	}
	for _, f := range change {
		f(&c)
	}
	w := worker.New(c)
	r.must(w.Start(r.t.Context()))
	r.t.Cleanup(func() {
		w.Stop(context.Background())
		r.must(p.Close())
	})
	return w
}

func (r *rig) scheduler(change ...func(*scheduler.Config)) *scheduler.Scheduler {
	c := scheduler.Config{Store: r.store, Client: r.client, Queue: r.queue, Webhooks: r.hooks, Steady: time.Millisecond, Log: r.log}
	for _, f := range change {
		f(&c)
	}
	s := scheduler.New(c)
	s.Start(r.t.Context())
	r.t.Cleanup(s.Stop)
	return s
}

func options() jobs.Options { return jobs.Options{TenantID: tenant, Actor: "test"} }

// create submits a sandbox and returns its id and its create job's.
func (r *rig) create(wish jobs.CreateSandbox) (sandbox, job string) {
	r.t.Helper()
	out, err := r.client.Create(r.t.Context(), wish, options())
	r.must(err)
	return out.Sandbox.ID, out.Jobs[0].ID
}

func (r *rig) submit(sandbox string, args kind.Args, o jobs.Options) string {
	r.t.Helper()
	out, err := r.client.Submit(r.t.Context(), sandbox, args, o)
	r.must(err)
	return out.Jobs[0].ID
}

func (r *rig) exec(sandbox, script string) string {
	r.t.Helper()
	return r.submit(sandbox, &kind.Exec{Command: script}, options())
}

// patience is for a busy machine; only what fails takes it.
const patience = time.Minute

// wait returns the job when it has ended.
func (r *rig) wait(job string) models.Job {
	r.t.Helper()
	j, err := r.waiters.Wait(r.t.Context(), tenant, job, patience)
	r.must(err)
	if !j.State.Terminal() {
		r.t.Fatalf("job %s (%s) is still %s after %v", j.ID, j.Kind, j.State, patience)
	}
	return j
}

// eventually waits for a condition that no notice tells of.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	testenv.Eventually(r.t, what, ok)
}

func (r *rig) sandbox(id string) models.Sandbox {
	r.t.Helper()
	b, err := r.store.Sandbox(r.t.Context(), tenant, id)
	r.must(err)
	return b
}

func (r *rig) job(id string) models.Job {
	r.t.Helper()
	j, err := r.store.Job(r.t.Context(), tenant, id)
	r.must(err)
	return j
}
