package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sandyard/imageref"
	"sandyard/models"
	"sandyard/providers"
)

// WorkerConfig is what a worker is made of.
type WorkerConfig struct {
	Store    *models.Store
	Redis    *redis.Options
	Provider providers.Provider
	Engine   string // where the provider's sandboxes live; workers of one engine can stand in for each other
	Name     string // what the worker is known by when it is started again; empty = by its host
	Slots    int    // jobs at once
	Gateway  string // URL at which the node's gateway is reached; empty = it has none
	Room     Room
	// DiskReserve is how much of its disk a node leaves free of new sandboxes, in bytes; 0 = it does not look. DiskEvery is
	// how often it does.
	DiskReserve int64
	DiskEvery   time.Duration
	MeterEvery  time.Duration // between readings of what sandboxes have used; 0 = half a minute
	Pool        PoolSizes
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
	Webhooks       *Webhooks
	Metrics        *Metrics
	Log            *slog.Logger
}

// Room is how many sandboxes a node holds at once, and what those on its engine may take together, whichever nodes hold them;
// 0 = no limit.
type Room struct {
	Sandboxes int
	CPUs      float64
	MemoryMB  int64
	Pids      int64
}

// Worker runs jobs against one provider. It is a node: sandboxes that live on its engine are held by it.
type Worker struct {
	store    *models.Store
	queue    *Queue
	provider providers.Provider
	node     models.Node
	pool     PoolSizes
	runtimes []string
	images   images
	builds   *buildTurns
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
	webhooks    *Webhooks
	metrics     *Metrics
	log         *slog.Logger

	slots      chan struct{}
	lanes      map[models.Lane]chan struct{} // their slots
	watches    watches
	endings    endings
	contexts   turns // of code in sandboxes
	servers    []*server
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
	held       map[string]*attempt // by job id
	handsOver  bool                // the grace is over: what begins now is let go at once
}

// NewWorker makes a worker. Start sets it to work.
func NewWorker(c WorkerConfig) *Worker {
	rdb := NewRedis(c.Redis, c.RedisHooks...)
	if c.Egress == nil {
		c.Egress = noEgress{}
	}
	name := c.Provider.Capabilities().Provider
	w := &Worker{
		store: c.Store, queue: NewQueue(rdb, c.Log), provider: c.Provider, rdb: rdb,
		newRedis: func() *redis.Client { return NewRedis(c.Redis, c.RedisHooks...) },
		node: models.Node{
			ID: models.NewID("n"), Provider: name, Engine: c.Engine, Slots: c.Slots, Gateway: c.Gateway, Host: host(), Name: c.Name,
			MaxSandboxes: c.Room.Sandboxes, MaxCPUs: c.Room.CPUs, MaxMemoryMB: c.Room.MemoryMB, MaxPids: c.Room.Pids,
		},
		diskReserve: c.DiskReserve, diskEvery: c.DiskEvery, meterEvery: cmp.Or(c.MeterEvery, meterEvery),
		pool: c.Pool, runtimes: c.Runtimes, images: images{store: c.Store, allowed: c.Images}, builds: newBuildTurns(c.Builds), leaving: make(chan struct{}),
		lease: c.Lease, grace: c.Grace, patience: cmp.Or(c.Patience, margin), egress: c.Egress, networks: make(chan struct{}, 1), webhooks: c.Webhooks, metrics: c.Metrics,
		log:   c.Log.With("provider", name),
		slots: make(chan struct{}, c.Slots), kick: make(chan struct{}, 1), quit: make(chan struct{}),
		lanes: map[models.Lane]chan struct{}{
			models.LaneWait: make(chan struct{}, waitSlots), models.LaneControl: make(chan struct{}, controlSlots),
		},
		held: map[string]*attempt{},
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

// Slots of a worker's lanes. A wait costs next to nothing; a control is over soon.
const (
	waitSlots    = 1024
	controlSlots = 64
)

// Node is the id under which the worker holds sandboxes.
func (w *Worker) Node() string { return w.node.ID }

// Start registers the node, adopts what dead nodes of its engine held, and takes jobs until Stop. Where the database cannot
// be asked, nothing has begun and it may be called again.
func (w *Worker) Start(ctx context.Context) error {
	wanted, err := w.store.Register(ctx, w.node, w.lease)
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	w.log = w.log.With("node", w.node.ID)
	w.obey(ctx, wanted)
	w.loops.Go(w.beatLoop)
	w.loops.Go(w.interruptLoop)
	w.reconcile(ctx)
	w.loops.Go(w.networkLoop)
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
	servers := []*server{
		w.newServer(ctx, jobs, cap(w.slots), w.handler(w.slots)),
		w.newServer(ctx, []string{webhookQueue}, webhookSlots, asynq.HandlerFunc(w.webhooks.handle)),
	}
	for lane, slots := range w.lanes {
		servers = append(servers, w.newServer(ctx, []string{lane.Queue(jobs[0]), lane.Queue(jobs[1])}, cap(slots), w.handler(slots)))
	}
	for _, s := range servers {
		w.servers = append(w.servers, s)
		if err := s.asynq.Start(s.handler); err != nil {
			return fmt.Errorf("start Asynq: %w", err)
		}
	}
	w.log.InfoContext(ctx, "worker started", "slots", cap(w.slots), "engine", w.node.Engine)
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
	w.loops.Go(func() { w.reconciler.lead.loop(ctx) })
	w.loops.Go(func() { w.reconciler.loop(ctx) })
}

// Stop takes no new jobs, gives the running ones most of the grace, hands the others to whoever comes next within the rest of
// it, and lets go of the node's sandboxes. Commands go on running in them.
func (w *Worker) Stop(ctx context.Context) {
	w.stopped.Do(func() { w.stop(ctx) })
}

func (w *Worker) stop(ctx context.Context) {
	began := time.Now()
	defer w.hurry()
	for _, s := range w.servers {
		s.quiet()
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
		servers.Go(s.stop)
	}
	servers.Wait()
	w.dropLast(ctx)
	close(w.quit)
	w.endLife()
	w.loops.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(stopPatience, max(time.Second, w.grace-time.Since(began))))
	defer cancel()
	if err := w.store.Retire(ctx, w.node.ID); err != nil {
		w.log.WarnContext(ctx, "node not retired, its lease will end by itself", "error", err)
	}
	if err := errors.Join(w.queue.forgetNode(ctx, w.node.ID), w.rdb.Close()); err != nil {
		w.log.WarnContext(ctx, "queue not removed", "error", err)
	}
	w.log.InfoContext(ctx, "worker stopped")
}

const (
	// stopPatience is how long a worker that stops waits, after its jobs' time, for an engine, a database or a Redis that does
	// not answer: for the jobs to let go, for the loops to end, and for its own farewell. What it leaves undone others find.
	stopPatience = 3 * time.Second
	// letGo is how much longer than those calls the jobs may take.
	letGo = time.Second
	// handingOver is the end of a grace, in which what still runs is handed over, and the process ends.
	handingOver = 5 * time.Second
)

// jobsTime is how much of the grace running jobs have. Of a short one they have most.
func (w *Worker) jobsTime() time.Duration { return w.grace - min(handingOver, w.grace/4) }

// drain waits for the running jobs, and when their time is over makes them detach.
func (w *Worker) drain() {
	deadline := time.NewTimer(w.jobsTime())
	defer deadline.Stop()
	handsOver := false
	for _, slots := range append(slices.Collect(maps.Values(w.lanes)), w.slots) {
		for taken := 0; taken < cap(slots); {
			select {
			case slots <- struct{}{}:
				taken++
			case <-deadline.C:
				if handsOver {
					w.log.Warn("jobs do not let go, they are left as after a crash")
					return
				}
				handsOver = true
				w.handOver()
				defer time.AfterFunc(stopPatience, w.hurry).Stop()
				deadline.Reset(stopPatience + letGo)
			}
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

// finishing is for what is still to be done for a job that has ended: it ends with its time, or when a worker that stops has no
// more patience.
func (w *Worker) finishing(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return until(ctx, limit, w.onHurry)
}

// living is for what loops do: it ends with its time, or with the worker.
func (w *Worker) living(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return until(ctx, limit, w.onLife)
}

func until(ctx context.Context, limit time.Duration, on func(func()) func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := on(cancel)
	return ctx, func() { stop(); cancel() }
}

// handler is called by Asynq, whose deadlines are not ours: the job runs detached from its context, in a slot of our own.
func (w *Worker) handler(slots chan struct{}) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { <-slots }()
		retried, _ := asynq.GetRetryCount(ctx)
		err := w.runJob(context.WithoutCancel(ctx), string(t.Payload()), retried > 0)
		if err != nil && retried > 0 {
			w.log.WarnContext(ctx, "task dropped, the sweep will send another", "job_id", string(t.Payload()), "error", err)
			return asynq.RevokeTask // Asynq's archive would keep it for nothing
		}
		return err
	})
}

// runJob runs one attempt of a job. Its error is for Asynq only, and means that nothing was begun; Asynq calls again
// then.
func (w *Worker) runJob(ctx context.Context, id string, again bool) error {
	job, err := w.claim(ctx, id, again)
	if errors.Is(err, models.ErrStale) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim job: %w", err)
	}
	ctx, a := w.begin(ctx, job)
	defer w.end(a)
	res, err := a.execute(ctx)
	a.conclude(ctx, res, err)
	return nil
}

// claim gives up with the lease that it asks for. What an earlier claim has taken without being told is taken again.
func (w *Worker) claim(ctx context.Context, id string, again bool) (models.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, w.lease)
	defer cancel()
	if again && !w.holds(id) {
		return w.store.ClaimAgain(ctx, id, w.node.ID, w.lease)
	}
	return w.store.Claim(ctx, id, w.node.ID, w.lease)
}

// begin holds a job; the context it returns ends when the job must be let go.
func (w *Worker) begin(ctx context.Context, j models.Job) (context.Context, *attempt) {
	a := &attempt{
		w: w, job: j, began: time.Now(), cancelled: j.CancelRequestedAt != nil,
		log: w.log.With("job_id", j.ID, "kind", j.Kind, "attempt", j.Attempt, "sandbox_id", j.SandboxID),
	}
	ctx, a.abandon = context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[a.job.ID] = a
	if w.handsOver {
		a.abandon(errShutdown)
	}
	return ctx, a
}

func (w *Worker) holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[id] != nil
}

func (w *Worker) end(a *attempt) {
	a.abandon(nil)
	leak()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[a.job.ID] == a {
		delete(w.held, a.job.ID)
	}
}

func (w *Worker) each(f func(*attempt)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.held {
		f(a)
	}
}

// interruptLoop listens for requests to stop a job of ours, which are then read at a heartbeat.
func (w *Worker) interruptLoop() {
	sub := w.rdb.PSubscribe(context.Background(), interruptChannel+"*")
	w.loops.Go(func() {
		<-w.quit
		_ = sub.Close() // ends the loop below
	})
	for m := range sub.Channel() {
		id := strings.TrimPrefix(m.Channel, interruptChannel)
		w.each(func(a *attempt) {
			if a.job.ID == id || a.job.SandboxID == id {
				w.beatNow()
			}
		})
	}
}

func (w *Worker) beatNow() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}
