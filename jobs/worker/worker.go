// Package worker carries jobs out against one provider: it takes tasks from Redis, claims their jobs, runs what the
// kind of each is, writes down how it ended, and gives back what it cannot end.
//
// A kind's function is in runners; what a worker does for its engine beside jobs is in package node.
package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"sandyard/imageref"
	"sandyard/jobs/circuit"
	"sandyard/jobs/imagepolicy"
	"sandyard/jobs/loop"
	"sandyard/jobs/node"
	"sandyard/jobs/queue"
	"sandyard/jobs/secrets"
	"sandyard/jobs/security"
	"sandyard/jobs/slots"
	"sandyard/jobs/webhook"
	"sandyard/keymutex"
	"sandyard/models"
	"sandyard/providers"
)

// Config is what a worker is made of.
type Config struct {
	Store    *models.Store
	Redis    *redis.Options
	Secrets  *secrets.Keeper
	Provider providers.Provider
	Engine   string // where the provider's sandboxes live; workers of one engine can stand in for each other
	Name     string // what the worker is known by when it is started again; empty = by its host
	Slots    int    // starts at once, in each lane; what only waits has none
	// CreateRate is how many creates begin per second, at most; 0 = no limit.
	CreateRate float64
	Gateway    string // URL at which the node's gateway is reached; empty = it has none
	Room       Room
	// DiskReserve is how much of its disk a node leaves free of new sandboxes, in bytes; 0 = it does not look. DiskEvery
	// is how often it does.
	DiskReserve int64
	DiskEvery   time.Duration
	MeterEvery  time.Duration // between readings of what sandboxes have used; 0 = half a minute
	Pool        node.PoolSizes
	Security    *security.Counter // nil = nobody counts
	WorkDir     string            // of pooled sandboxes whose template names none; empty = the provider's
	Runtimes    []string          // that templates may name
	Images      imageref.Globs    // that tenants may name, besides those of shared templates and of their builds
	Builds      int               // at once, of which one tenant may have half; 0 = 4
	Lease       time.Duration     // how long a job or a sandbox waits for a worker that has gone silent
	Grace       time.Duration     // how long Stop takes, with what it hands over of the running jobs at its end
	// For a provider that hangs: to open a sandbox, and beyond a program's own time; 0 = two minutes.
	Patience time.Duration
	Egress   node.Egress // nil = sandboxes reach nothing, whatever their policies say
	// RedisHooks are asked to make each of the worker's calls to Redis.
	RedisHooks []redis.Hook
	// Reconcile is the time between comparisons of the engine with the tables; 0 = never.
	Reconcile time.Duration
	// ReconcileGrace is how long a difference that may pass by itself is left alone.
	ReconcileGrace time.Duration
	Webhooks       *webhook.Sender
	Metrics        *Metrics
	Log            *slog.Logger
}

// Room is how many sandboxes a node holds at once, and what those on its engine may take together, whichever nodes hold
// them; 0 = no limit.
type Room struct {
	Sandboxes int
	CPUs      float64
	MemoryMB  int64
	Pids      int64
}

// Worker runs jobs against one provider. It is a node: sandboxes that live on its engine are held by it.
type Worker struct {
	store    *models.Store
	secrets  *secrets.Keeper
	queue    *queue.Queue
	provider providers.Provider
	node     models.Node
	security *security.Counter
	runtimes []string
	images   imagepolicy.Policy
	builds   *slots.Lane
	health   *circuit.Breaker
	creates  *rate.Limiter // creates that begin; nil = as many as come
	lease    time.Duration
	grace    time.Duration
	patience time.Duration
	webhooks *webhook.Sender
	metrics  *Metrics
	log      *slog.Logger

	disk      *node.Disk
	networks  *node.Networks
	outputs   *node.Outputs
	usage     *node.Usage
	nodeLoops []interface{ Run(context.Context) }

	lanes   map[models.Lane]*slots.Lane
	watches watches
	// endings lets the jobs of one sandbox be finished one at a time. They need the sandbox's row one after the other
	// anyway; many that wait for it in the database would take its connections from all others, heartbeats included.
	endings  keymutex.Mutex
	contexts keymutex.Mutex // of code in sandboxes
	rebuilds keymutex.Mutex // of images, by their builds
	servers  []*queue.Server
	newRedis func() *redis.Client
	rdb      *redis.Client

	life          *loop.Life // of the loops
	waits         *loop.Life // until a worker that stops waits for nothing any more
	loops         sync.WaitGroup
	kick          chan struct{} // heart, beat now
	draining      atomic.Bool   // it is given no new sandboxes
	stopRequested chan struct{} // closed when it is to stop
	leave         sync.Once
	stopped       sync.Once

	mu        sync.Mutex
	held      map[models.AttemptRef]*attempt
	coming    map[string]time.Time // jobs whose tasks wait for a slot or are claimed, and since when the sweep knows
	handsOver bool                 // the grace is over: what begins now is let go at once
}

// New makes a worker. Start sets it to work.
func New(c Config) *Worker {
	rdb := queue.NewRedis(c.Redis, c.RedisHooks...)
	name := c.Provider.Capabilities().Provider
	w := &Worker{
		store: c.Store, secrets: cmp.Or(c.Secrets, secrets.New(c.Store, nil)), queue: queue.NewQueue(rdb, c.Log),
		provider: c.Provider, rdb: rdb, newRedis: func() *redis.Client { return queue.NewRedis(c.Redis, c.RedisHooks...) },
		node: models.Node{
			ID: models.NewID(
				"n",
			), Provider: name, Engine: c.Engine, Slots: c.Slots, Gateway: c.Gateway, Host: host(), Name: c.Name,
			MaxSandboxes: c.Room.Sandboxes, MaxCPUs: c.Room.CPUs, MaxMemoryMB: c.Room.MemoryMB, MaxPids: c.Room.Pids,
		},
		security: c.Security, runtimes: c.Runtimes, images: imagepolicy.New(c.Store, nil, c.Images),
		builds: buildLane(cmp.Or(c.Builds, defaultBuilds)), stopRequested: make(chan struct{}),
		lease: c.Lease, grace: c.Grace,
		patience: cmp.Or(
			c.Patience,
			providerTimeout,
		), webhooks: c.Webhooks, metrics: c.Metrics, log: c.Log.With("provider", name),
		kick: make(chan struct{}, 1), life: loop.NewLife(), waits: loop.NewLife(), lanes: map[models.Lane]*slots.Lane{},
		coming: map[string]time.Time{}, held: map[models.AttemptRef]*attempt{},
	}
	w.health = circuit.New(c.Provider, c.Metrics.available, w.log)
	if c.CreateRate > 0 {
		w.creates = rate.NewLimiter(rate.Limit(c.CreateRate), max(1, int(c.CreateRate)))
	}
	for lane := range models.Lanes() {
		w.lanes[lane] = slots.New(c.Slots, max(c.Slots, mostAttempts(lane)))
	}
	w.watches.life = w.life
	w.tend(c)
	return w
}

// tend makes what looks after the node beside jobs.
func (w *Worker) tend(c Config) {
	b := node.Base{
		Store: w.store, Queue: w.queue, Provider: w.provider, Node: w.node, Security: w.security, Metrics: c.Metrics.node,
		Log: w.log.With("node", w.node.ID), Life: w.life, Patience: w.waits,
	}
	w.outputs, w.networks, w.usage = node.NewOutputs(
		b,
	), node.NewNetworks(
		b,
		c.Egress,
	), &node.Usage{
		Base:  b,
		Every: c.MeterEvery,
	}
	w.disk = node.NewDisk(b, c.DiskReserve, c.DiskEvery, w.beatNow) // so that it is known where sandboxes are placed
	pool := &node.Pool{
		Base: b, Sizes: c.Pool, WorkDir: c.WorkDir, Offers: w.mayPool,
		Closed: func() bool { return w.draining.Load() || w.disk.Low() },
	}
	w.nodeLoops = append(w.nodeLoops, w.outputs, w.networks, w.usage, w.disk, pool, node.NewImages(b))
	if c.Reconcile > 0 {
		w.nodeLoops = append(w.nodeLoops, node.NewReconciler(b, c.Reconcile, c.ReconcileGrace, w.refer))
	}
}

// mayPool says whether sandboxes of a template may wait here: its runtime is offered, and its owner may have its image.
func (w *Worker) mayPool(ctx context.Context, t models.Template) bool {
	return w.offers(t.Definition.Runtime) == nil && (t.TenantID == nil || w.checkAgain(ctx, *t.TenantID, t.Image) == nil)
}

// host is the machine's name, for people.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

const (
	// providerTimeout is how long a provider may take for a call that has no timeout of its own.
	providerTimeout = 2 * time.Minute
	// tasksHeld is how many tasks a worker has from Redis at once. Nearly all of them only wait for a slot.
	tasksHeld = 4096
	// mostRunning is how many programs of one tenant, with waits for them, go on at once on a worker: of each it may hold
	// twice largestMaxOutput. mostOthers likewise of what each other lane has.
	mostRunning = 256
	mostOthers  = 256
	// defaultBuilds is how many builds a worker runs at once where its configuration does not say.
	defaultBuilds = 4
)

// buildLane bounds the builds that run at once on a worker. No tenant has more than half of the turns, so that one
// whose builds take hours keeps nobody else from building.
func buildLane(n int) *slots.Lane { return slots.New(n, max(1, n/2)) }

// mostAttempts is how many attempts of one tenant a lane holds, with those that wait without a slot.
func mostAttempts(lane models.Lane) int {
	if lane == models.LaneRun {
		return mostRunning
	}
	return mostOthers
}

// Node is the id under which the worker holds sandboxes.
func (w *Worker) Node() string { return w.node.ID }

// Start registers the node, adopts what dead nodes of its engine held, and takes jobs until Stop. Where the database
// cannot be asked, nothing has begun and it may be called again.
func (w *Worker) Start(ctx context.Context) error {
	wanted, err := w.store.Register(ctx, w.node, w.lease)
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	w.log = w.log.With("node", w.node.ID)
	w.applyOrders(ctx, wanted)
	w.loops.Go(w.beatLoop)
	w.loops.Go(w.interruptLoop)
	w.loops.Go(w.handLoop)
	w.loops.Go(w.healthLoop)
	for _, l := range w.nodeLoops {
		w.loops.Go(func() { l.Run(context.WithoutCancel(ctx)) })
	}
	jobs := []string{"node-" + w.node.ID, w.node.Provider}
	servers := []queue.ServerConfig{
		{Queues: jobs, Slots: tasksHeld, Handle: w.handle},
		{Queues: []string{queue.Webhooks}, Slots: webhook.Slots, Handle: w.webhooks.Handle},
	}
	for _, c := range servers {
		c.Redis, c.Notices, c.Log = w.newRedis(), w.rdb, w.log
		s := queue.NewServer(ctx, c)
		w.servers = append(w.servers, s)
		if err := s.Start(); err != nil {
			return fmt.Errorf("start Asynq: %w", err)
		}
	}
	w.log.InfoContext(ctx, "worker started", "slots", w.node.Slots, "engine", w.node.Engine)
	return nil
}

// healthLoop looks after the provider until the worker stops.
func (w *Worker) healthLoop() {
	ctx, cancel := w.life.Context(context.Background())
	defer cancel()
	w.health.Loop(ctx)
}

// interruptLoop listens for requests to stop a job of ours, which are then read from its row.
func (w *Worker) interruptLoop() {
	stop, done := queue.Interrupts(context.Background(), w.rdb, w.interrupt)
	<-w.life.Done()
	stop()
	<-done
}

// interrupt stops what runs here of a job or in a sandbox, as far as that was asked for. A delete is what others end
// for.
func (w *Worker) interrupt(id string) {
	mine := map[models.AttemptRef]*attempt{}
	w.each(func(a *attempt) {
		if a.job.ID == id || a.job.SandboxID == id && a.job.Kind != models.KindDelete {
			mine[a.held()] = a
		}
	})
	if len(mine) == 0 {
		return
	}
	ctx, cancel := w.life.Within(context.Background(), w.lease/3)
	defer cancel()
	asked, err := w.store.Asked(ctx, keys(mine))
	if err != nil {
		w.log.WarnContext(ctx, "cancel requests not read, the next heartbeat reads them", "error", err)
		return
	}
	for _, h := range asked {
		mine[h].requestCancel()
	}
}

func (w *Worker) beatNow() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}
