package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/faultproxy"
	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
	"sandyard/tokens"
)

// layer is where a call fails.
type layer string

const (
	inPostgres layer = "postgres" // as GORM sees it
	inRedis    layer = "redis"    // as go-redis sees it
	inProvider layer = "provider"
	onWire     layer = "wire" // the connection to PostgreSQL
)

func layers() []layer { return []layer{inPostgres, inRedis, inProvider, onWire} }

// switchboard counts the calls of a scripted run and makes one of them fail.
type switchboard struct {
	redis *redis.Client // past all faults
	mu    sync.Mutex
	armed bool
	loops []string // functions whose calls count although a loop makes them
	f     fault
	calls map[layer]int
	hit   string               // the call that failed
	seen  int                  // calls of all runs, armed or not
	rests map[string]time.Time // calls of the provider that are not wanted before then
	soon  string               // one that came all the same
}

// arm begins a run.
func (s *switchboard) arm(f fault, loops []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.f, s.loops, s.calls, s.hit, s.rests, s.soon = true, f, loops, map[layer]int{}, "", map[string]time.Time{}, ""
}

// made is how many calls there were, which stays the same where all rests.
func (s *switchboard) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// tooSoon is a call that the provider had asked to be spared.
func (s *switchboard) tooSoon() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.soon
}

// counted are the functions whose calls count although a loop makes them.
func (s *switchboard) counted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loops
}

// disarm ends the run and returns how many calls each layer has seen and which one failed.
func (s *switchboard) disarm() (calls map[layer]int, hit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.loops = false, nil
	return s.calls, s.hit
}

// strike counts a call and says whether it is to fail.
func (s *switchboard) strike(l layer, call string) (fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if !s.armed {
		return fault{}, false
	}
	s.calls[l]++
	if l != s.f.layer || s.calls[l] != s.f.k {
		return fault{}, false
	}
	s.hit = strings.Join(strings.Fields(call), " ")
	return s.f, true
}

var errCut = fmt.Errorf("injected: %w", io.ErrUnexpectedEOF)

// around makes a call with the fault that is set for it.
func (s *switchboard) around(l layer, call string, do func() error) error {
	f, struck := s.strike(l, call)
	switch {
	case !struck:
		return do()
	case f.after:
		return errors.Join(do(), errCut)
	}
	return errCut
}

// inBackground says whether the caller is a loop that runs whether there is work or not: its calls would make k mean
// another call in each run. A script may want some of them all the same.
func (s *switchboard) inBackground() bool {
	wanted := s.counted()
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if slices.ContainsFunc(wanted, func(name string) bool { return strings.HasSuffix(f.Function, name) }) {
			return false
		}
		for _, loop := range []string{
			"beatLoop", "networkLoop", "stockLoop", "pruneLoop", "meterLoop", "diskLoop", "spoolLoop", "(*Leader)", "(*reconciler)", "(*Scheduler).loop", "(*heartbeater)", "(*janitor)", "(*forwarder)",
			"(*recoverer)", "(*subscriber)", "(*aggregator)", "(*healthchecker)", "(*syncer)", "interruptLoop", "queue.Interrupts", "(*Waiters)", "(*gate)",
		} {
			if strings.Contains(f.Function, loop) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

// tap is the pg.Interceptor of the stores that take part.
func (s *switchboard) tap(_ context.Context, statement string, do func() error) error {
	if s.inBackground() {
		return do()
	}
	return s.around(inPostgres, statement, do)
}

// DialHook implements redis.Hook.
func (s *switchboard) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (s *switchboard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.inBackground() || idle(cmd) {
			return next(ctx, cmd)
		}
		if queue := dequeued(cmd); queue != "" {
			return s.dequeue(ctx, queue, cmd, next)
		}
		err := s.around(inRedis, cmd.String(), func() error { return next(ctx, cmd) })
		if errors.Is(err, errCut) {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (s *switchboard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.inBackground() {
			return next(ctx, cmds)
		}
		return s.around(inRedis, "pipeline", func() error { return next(ctx, cmds) })
	}
}

// dequeued is the queue of which a command takes a task, as Asynq calls its keys; empty = it takes none.
func dequeued(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 7 || !strings.HasPrefix(cmd.Name(), "eval") || !strings.HasSuffix(fmt.Sprint(args[4]), ":paused") {
		return ""
	}
	queue, _ := strings.CutSuffix(fmt.Sprint(args[3]), ":pending")
	return queue
}

// dequeue counts only those that find something, for how often a worker looks is no two runs the same. A task that was not to
// be found goes back to where it was.
func (s *switchboard) dequeue(ctx context.Context, queue string, cmd redis.Cmder, next redis.ProcessHook) error {
	if err := next(ctx, cmd); err != nil {
		return err
	}
	f, struck := s.strike(inRedis, cmd.String())
	if !struck {
		return nil
	}
	if !f.after {
		s.putBack(ctx, queue)
	}
	cmd.SetErr(errCut)
	return errCut
}

// putBack undoes a dequeue: the task that was taken last is the first again.
func (s *switchboard) putBack(ctx context.Context, queue string) {
	id, err := s.redis.LPop(ctx, queue+":active").Result()
	if err == nil {
		_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRem(ctx, queue+":lease", id)
			p.HSet(ctx, queue+":t:"+id, "state", "pending")
			p.RPush(ctx, queue+":pending", id)
			return nil
		})
	}
	if err != nil {
		panic(err)
	}
}

// idle says whether a command only looks whether there is work.
func idle(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "smembers", "exists", "subscribe", "psubscribe", "hello", "client", "ping":
		return true
	}
	return false
}

// onCall is the wire's decision. A connection prepares a statement when it first sees it, and the pool makes connections
// when it likes: these calls are not counted, because no two runs would have the same.
func (s *switchboard) onCall(c faultproxy.Call) faultproxy.Fault {
	for _, noise := range []string{"INTO nodes", "FROM nodes", "leases", "egress_", "egress IS", "WITH held", "b.image FROM builds", "built.image", "usage_meters", `"provider_ref" FROM`, "rollback", "deallocate", "idle_in_transaction", "-- ping"} {
		if c.Text == "" || strings.Contains(c.Text, noise) {
			return faultproxy.None
		}
	}
	if c.Text == "connect" || preparesOnly(c.Text) {
		return faultproxy.None
	}
	f, struck := s.strike(onWire, c.Text)
	switch {
	case !struck:
		return faultproxy.None
	case f.how == silent && f.after:
		return faultproxy.HangAfter
	case f.how == silent:
		return faultproxy.Hang
	case f.after:
		return faultproxy.CutAfter
	}
	return faultproxy.CutBefore
}

func preparesOnly(call string) bool {
	return !slices.ContainsFunc(strings.Split(call, "; "), func(part string) bool { return !strings.HasPrefix(part, "prepare ") })
}

// faultRig is a rig whose client, worker and scheduler are driven over what the switchboard breaks. The rig's own calls,
// which prepare and look, go past it.
type faultRig struct {
	*jobsrig.Rig
	board  *switchboard
	acting *models.Store
	acts   *jobs.Client
	queue  *queue.Queue
	conn   *pgx.Conn
	images *jobsrig.Images
	timed  *models.Store // the scheduler's
	lead   *scheduler.Scheduler
	hastes bool // jobs have little time
}

func newFaultRig(t testing.TB) *faultRig {
	t.Helper()
	r := &faultRig{Rig: jobsrig.New(t)}
	r.board = &switchboard{redis: r.RDB}
	var err error
	r.conn, err = pgx.Connect(t.Context(), r.DSN)
	r.Must(err)
	t.Cleanup(func() { r.Must(r.conn.Close(context.Background())) })
	_, err = r.conn.Exec(t.Context(), `CREATE FUNCTION hurry() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN NEW.timeout_ms := least(NEW.timeout_ms, `+strconv.Itoa(int(deadline.Milliseconds()))+`); RETURN NEW; END $$`)
	r.Must(err)
	r.SQL("UPDATE tenants SET max_templates = 10000") // each play of a build makes one
	r.State.OnCall(r.board.onProvider)
	store := func(wired bool) *models.Store {
		dsn := r.DSN
		if wired {
			var proxy *faultproxy.Proxy
			proxy, dsn = faultproxy.Postgres(t, r.DSN)
			proxy.On(r.board.onCall)
			t.Cleanup(func() { proxy.On(nil) })
		}
		s, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 64}, r.board.tap)
		r.Must(err)
		t.Cleanup(func() { r.Must(s.Close()) })
		return s
	}
	acting := store(true)
	r.acting, r.images = acting, &jobsrig.Images{Held: []string{"fake"}}
	rdb := queue.NewRedis(r.Redis, r.board)
	t.Cleanup(func() { r.Must(rdb.Close()) })
	r.queue = queue.NewQueue(rdb, r.Log)
	t.Cleanup(r.queue.Close)
	catalog := r.Client.Catalog()
	catalog.Edge = tokens.Address{Scheme: "http", Domain: "edge"}
	r.acts = jobs.NewClient(acting, r.queue, catalog, r.Log)
	provider := &breakable{&jobsrig.Builder{Provider: fake.New(fake.Options{State: r.State, PerNode: true}), Engine: r.images}}
	t.Cleanup(func() { r.Must(provider.Close()) })
	r.WorkerOn(r.State, 8, func(c *worker.Config) {
		c.Store, c.RedisHooks, c.Lease, c.Grace, c.Patience = acting, []redis.Hook{r.board}, faultLease, time.Second, deadline
		c.Reconcile, c.ReconcileGrace = 500*time.Millisecond, time.Second
		c.Provider, c.Gateway = provider, "http://gateway.test"
		c.Webhooks, c.MeterEvery = webhook.New(acting, r.queue, jobsrig.Loopback(), r.Log), 300*time.Millisecond
	})
	r.timed = store(false)
	r.lead = r.leading()
	return r
}

// leading is another scheduler.
func (r *faultRig) leading() *scheduler.Scheduler {
	return r.Scheduler(func(c *scheduler.Config) {
		c.Store, c.Queue, c.Client = r.timed, r.queue, jobs.NewClient(r.timed, r.queue, r.Client.Catalog(), r.Log)
		c.Webhooks, c.Retention = webhook.New(r.timed, r.queue, jobsrig.Loopback(), r.Log), scheduler.Retention{History: day, Output: day}
	})
}

const day = 24 * time.Hour

// faultLease is long enough for a busy machine. After some faults a job waits for its end.
const faultLease = 10 * time.Second
