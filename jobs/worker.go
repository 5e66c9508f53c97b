package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"sandyard/imageref"
	"sandyard/jobs/queue"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/providers"
)

// WorkerConfig is what a worker is made of.
type WorkerConfig struct {
	Store    *models.Store
	Redis    *redis.Options
	Secrets  *Secrets
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
	Pool        PoolSizes
	Security    *Security      // nil = nobody counts
	WorkDir     string         // of pooled sandboxes whose template names none; empty = the provider's
	Runtimes    []string       // that templates may name
	Images      imageref.Globs // that tenants may name, besides those of shared templates and of their builds
	Builds      int            // at once, of which one tenant may have half; 0 = 4
	Lease       time.Duration  // how long a job or a sandbox waits for a worker that has gone silent
	Grace       time.Duration  // how long Stop takes, with what it hands over of the running jobs at its end
	Patience    time.Duration  // for a provider that hangs: to open a sandbox, and beyond a program's own time; 0 = two minutes
	Egress      Egress         // nil = sandboxes reach nothing, whatever their policies say
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
	secrets  *Secrets
	queue    *queue.Queue
	provider providers.Provider
	node     models.Node
	pool     PoolSizes
	security *Security
	workDir  string
	runtimes []string
	images   images
	builds   *buildTurns
	health   *health
	creates  *rate.Limiter               // creates that begin; nil = as many as come
	disk     atomic.Pointer[models.Disk] // nil = not known
	draining atomic.Bool                 // it is given no new sandboxes
	leaving  chan struct{}               // closed when it is to stop
	leave    sync.Once

	diskReserve int64 // bytes
	diskEvery   time.Duration
	meterEvery  time.Duration
	lease       time.Duration
	grace       time.Duration
	patience    time.Duration
	egress      Egress
	networks    chan struct{} // look after them now
	policies    sync.Mutex    // held from a look at the rows of policies until they hold
	webhooks    *webhook.Sender
	metrics     *Metrics
	log         *slog.Logger

	lanes      map[models.Lane]*slots
	watches    watches
	endings    endings
	contexts   turns // of code in sandboxes
	servers    []*queue.Server
	newRedis   func() *redis.Client
	rdb        *redis.Client
	reconciler *reconciler   // nil = none
	kick       chan struct{} // heart, beat now
	quit       chan struct{}
	endLife    context.CancelFunc
	onLife     func(func()) func() bool // calls it when the loops are to end
	hurry      context.CancelFunc
	onHurry    func(func()) func() bool // calls it when nothing is waited for any more
	spools     spools
	stopped    sync.Once
	loops      sync.WaitGroup
	mu         sync.Mutex
	held       map[models.Held]*attempt
	coming     map[string]time.Time // jobs whose tasks wait for a slot or are being claimed, and since when the sweep knows
	handsOver  bool                 // the grace is over: what begins now is let go at once
}

// NewWorker makes a worker. Start sets it to work.
func NewWorker(c WorkerConfig) *Worker {
	rdb := queue.NewRedis(c.Redis, c.RedisHooks...)
	if c.Egress == nil {
		c.Egress = noEgress{}
	}
	name := c.Provider.Capabilities().Provider
	w := &Worker{
		store: c.Store, secrets: cmp.Or(c.Secrets, NewSecrets(c.Store, nil)), queue: queue.NewQueue(rdb, c.Log), provider: c.Provider, rdb: rdb,
		newRedis: func() *redis.Client { return queue.NewRedis(c.Redis, c.RedisHooks...) },
		node: models.Node{
			ID: models.NewID(
				"n",
			), Provider: name, Engine: c.Engine, Slots: c.Slots, Gateway: c.Gateway, Host: host(), Name: c.Name,
			MaxSandboxes: c.Room.Sandboxes, MaxCPUs: c.Room.CPUs, MaxMemoryMB: c.Room.MemoryMB, MaxPids: c.Room.Pids,
		},
		diskReserve: c.DiskReserve, diskEvery: c.DiskEvery, meterEvery: cmp.Or(c.MeterEvery, meterEvery),
		pool: c.Pool, security: c.Security, workDir: c.WorkDir, runtimes: c.Runtimes, images: images{store: c.Store, allowed: c.Images}, builds: newBuildTurns(c.Builds), leaving: make(chan struct{}),
		lease: c.Lease, grace: c.Grace, patience: cmp.Or(c.Patience, providerTimeout), egress: c.Egress, networks: make(chan struct{}, 1), webhooks: c.Webhooks, metrics: c.Metrics,
		log:  c.Log.With("provider", name),
		kick: make(chan struct{}, 1), quit: make(chan struct{}), lanes: map[models.Lane]*slots{},
		coming: map[string]time.Time{}, held: map[models.Held]*attempt{},
	}
	w.health = newHealth(c.Provider, c.Metrics.available, w.log)
	if c.CreateRate > 0 {
		w.creates = rate.NewLimiter(rate.Limit(c.CreateRate), max(1, int(c.CreateRate)))
	}
	for lane := range models.Lanes() {
		w.lanes[lane] = newSlots(c.Slots, mostAttempts(lane))
	}
	if c.Reconcile > 0 {
		w.reconciler = w.newReconciler(c.Reconcile, c.ReconcileGrace)
	}
	life, end := context.WithCancel(context.Background())
	w.endLife, w.onLife = end, func(f func()) func() bool { return context.AfterFunc(life, f) }
	patience, lose := context.WithCancel(context.Background())
	w.hurry, w.onHurry = lose, func(f func()) func() bool { return context.AfterFunc(patience, f) }
	w.watches.onQuit = w.onLife
	return w
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
)

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
	w.obey(ctx, wanted)
	w.loops.Go(w.beatLoop)
	w.loops.Go(w.interruptLoop)
	w.loops.Go(w.handLoop)
	w.reconcile(ctx)
	w.loops.Go(w.networkLoop)
	w.loops.Go(w.healthLoop)
	w.loops.Go(w.spoolLoop)
	if pool, ok := w.provider.(providers.Pooler); ok {
		w.loops.Go(func() { w.stockLoop(ctx, pool) })
	}
	if disk, ok := w.provider.(providers.DiskReporter); ok && w.diskReserve > 0 {
		w.loops.Go(func() { w.diskLoop(ctx, disk, cmp.Or(w.diskEvery, diskEvery)) })
	}
	if meter, ok := w.provider.(providers.Meter); ok {
		w.loops.Go(func() { w.meterLoop(ctx, meter, w.meterEvery) })
	}
	if builder, ok := w.provider.(providers.Builder); ok {
		w.loops.Go(func() { w.pruneLoop(ctx, builder) })
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

// reconcile keeps the engine and the tables alike until the worker stops.
func (w *Worker) reconcile(ctx context.Context) {
	if w.reconciler == nil || !reconciles {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.loops.Go(func() {
		<-w.quit
		cancel()
	})
	w.loops.Go(func() { w.reconciler.lead.Run(ctx) })
	w.loops.Go(func() { w.reconciler.loop(ctx) })
}

// Stop takes no new jobs, gives the running ones most of the grace, hands the others to whoever comes next within the
// rest of it, and lets go of the node's sandboxes. Commands go on running in them.
func (w *Worker) Stop(ctx context.Context) {
	w.stopped.Do(func() { w.stop(ctx) })
}

func (w *Worker) stop(ctx context.Context) {
	began := time.Now()
	defer w.hurry()
	for _, s := range w.servers {
		s.Quiet()
	}
	w.each(func(a *attempt) {
		if a.job.Kind == models.KindExecWait { // nobody is helped by the grace
			a.abandon(errShutdown)
		}
	})
	w.drain()
	defer time.AfterFunc(stopPatience, w.hurry).Stop()
	var servers sync.WaitGroup
	for _, s := range w.servers {
		servers.Go(s.Stop)
	}
	servers.Wait()
	w.dropLast(ctx)
	close(w.quit)
	w.endLife()
	w.loops.Wait()
	w.queue.Close()
	ctx, cancel := context.WithTimeout(
		context.WithoutCancel(ctx),
		min(stopPatience, max(time.Second, w.grace-time.Since(began))),
	)
	defer cancel()
	if err := w.store.Retire(ctx, w.node.ID); err != nil {
		w.log.WarnContext(ctx, "node not retired, its lease expires by itself", "error", err)
	}
	if err := errors.Join(w.queue.ForgetNode(ctx, w.node.ID), w.rdb.Close()); err != nil {
		w.log.WarnContext(ctx, "queue not removed", "error", err)
	}
	w.log.InfoContext(ctx, "worker stopped")
}

const (
	// stopPatience is how long a worker that stops waits, after its jobs' time, for an engine, a database or a Redis that
	// does not answer: for the jobs to let go, for the loops to end, and for its own farewell. What it leaves undone
	// others find.
	stopPatience = 3 * time.Second
	// letGo is how much longer than those calls the jobs may take.
	letGo = time.Second
	// handingOver is the end of a grace, in which what still runs is handed over, and the process ends.
	handingOver = 5 * time.Second
)

// jobsTime is how much of the grace running jobs have. Of a short one they have most.
func (w *Worker) jobsTime() time.Duration { return w.grace - min(handingOver, w.grace/4) }

// drain starts nothing more, waits for the running jobs, and when their time is over makes them detach.
func (w *Worker) drain() {
	deadline := time.NewTimer(w.jobsTime())
	defer deadline.Stop()
	var idle []<-chan struct{}
	for _, lane := range w.lanes {
		idle = append(idle, lane.close())
	}
	handsOver := false
	for len(idle) > 0 {
		select {
		case <-idle[0]:
			idle = idle[1:]
		case <-deadline.C:
			if handsOver {
				w.log.Warn("jobs did not stop in time, other workers recover them")
				return
			}
			handsOver = true
			w.handOver()
			defer time.AfterFunc(stopPatience, w.hurry).Stop()
			deadline.Reset(stopPatience + letGo)
		}
	}
}

// handOver makes all attempts let go of their jobs, also those that are about to begin.
func (w *Worker) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handsOver = true
	for _, a := range w.held {
		a.abandon(errShutdown)
	}
}

// finishing is for what is still to be done for a job that has ended: it ends with its time, or when a worker that
// stops has no more patience.
func (w *Worker) finishing(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return until(ctx, limit, w.onHurry)
}

// living is for what loops do: it ends with its time, or with the worker.
func (w *Worker) living(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return until(ctx, limit, w.onLife)
}

func until(
	ctx context.Context,
	limit time.Duration,
	on func(func()) func() bool,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := on(cancel)
	return ctx, func() { stop(); cancel() }
}

// interruptLoop listens for requests to stop a job of ours, which are then read from its row.
func (w *Worker) interruptLoop() {
	stop, done := queue.Interrupts(context.Background(), w.rdb, w.interrupt)
	<-w.quit
	stop()
	<-done
}

// interrupt stops what runs here of a job or in a sandbox, as far as that was asked for. A delete is what others end
// for.
func (w *Worker) interrupt(id string) {
	mine := map[models.Held]*attempt{}
	w.each(func(a *attempt) {
		if a.job.ID == id || a.job.SandboxID == id && a.job.Kind != models.KindDelete {
			mine[a.held()] = a
		}
	})
	if len(mine) == 0 {
		return
	}
	ctx, cancel := w.living(context.Background(), w.lease/3)
	defer cancel()
	asked, err := w.store.Asked(ctx, keys(mine))
	if err != nil {
		w.log.WarnContext(ctx, "cancel requests not read, the next heartbeat reads them", "error", err)
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
