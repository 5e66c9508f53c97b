package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"sandyard/dev/abbench"
	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// BenchmarkIdle measures how soon an idle worker begins. Picking up is from handing the job to Redis until its command
// starts in the sandbox, with the claim in PostgreSQL; from submission it is also the commit before. The baseline is
// bare Asynq with its defaults, from Enqueue to the handler.
func BenchmarkIdle(b *testing.B) {
	y := newBenchYard(b)
	sent := &sending{at: make(chan time.Time, roundJobs)}
	y.RDB.AddHook(sent)
	box := y.boxes(1)[0]
	bare := newBareAsynq(b, func(context.Context, *asynq.Task) error { return nil })
	ours := func(fromSubmit bool) abbench.Way {
		return func() (time.Duration, error) {
			drain(sent.at)
			began := time.Now()
			job := y.Exec(box, "fake:exit 0")
			if !fromSubmit {
				began = <-sent.at
			}
			took := (<-y.started).Sub(began)
			y.Wait(job)
			return took, nil
		}
	}
	base := func() (time.Duration, error) {
		began := time.Now()
		_, err := bare.client.Enqueue(asynq.NewTask("exec", nil))
		return (<-bare.started).Sub(began), err
	}
	b.Run("pick up/vs asynq", func(b *testing.B) { abbench.Latency(b, idleTurns, ours(false), base) })
	b.Run("submit to start/vs asynq", func(b *testing.B) { abbench.Latency(b, idleTurns, ours(true), base) })
}

// sending is a hook on the submitting side's Redis client that tells when a task is handed over.
type sending struct{ at chan time.Time }

func (s *sending) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sending) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *sending) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" { // Asynq's script that enqueues; nothing else here uses scripts
			s.at <- time.Now()
		}
		return next(ctx, cmd)
	}
}

func drain(c chan time.Time) {
	for len(c) > 0 {
		<-c
	}
}

// idleTurns are few for the baseline, which takes more than half a second each.
var idleTurns = abbench.Turns{Rounds: 20, Ours: 10, Base: 1} //nolint:gochecknoglobals // a constant

// BenchmarkResult measures from the call that submits a command of no duration until the submitter holds its result.
// The baseline asks Asynq for the task every 50 ms.
func BenchmarkResult(b *testing.B) {
	b.Run("submit to result/vs asynq polled", func(b *testing.B) {
		y := newBenchYard(b)
		box := y.boxes(1)[0]
		bare := newBareAsynq(b, func(_ context.Context, t *asynq.Task) error {
			_, err := t.ResultWriter().Write([]byte("hello"))
			return err
		})
		abbench.Latency(b, idleTurns, abbench.Timed(func() error {
			j := y.Wait(y.Exec(box, "fake:stdout hello"))
			<-y.started
			return expect(string(j.Stdout))
		}), abbench.Timed(func() error {
			info, err := bare.client.Enqueue(asynq.NewTask("exec", nil), asynq.Retention(time.Minute))
			if err != nil {
				return err
			}
			result, err := bare.poll(info.ID, 50*time.Millisecond)
			<-bare.started
			return errors.Join(err, expect(string(result)))
		}))
	})
}

func expect(got string) error {
	if got != "hello" {
		return fmt.Errorf("the result is %q", got)
	}
	return nil
}

// Of a throughput round.
const (
	roundJobs    = 20_000
	roundBoxes   = 100
	roundClients = 32
	roundSlots   = 64
	// finishedRounds is few because a round is long: what is measured is a queue under load, not its waking up.
	finishedRounds = 2
)

// BenchmarkFinished measures how many jobs per second are submitted, run and finished on one worker, both sides of it
// sharing the machine and working on 64 jobs at once. Jobs of one sandbox run one after the other. Bare Asynq does nothing
// but the queueing; with a row per job, inserted and then twice updated through GORM, it does what a plain durable queue
// would. River is a queue in PostgreSQL that fetches and completes jobs in batches.
func BenchmarkFinished(b *testing.B) {
	for _, baseline := range []struct {
		name  string
		start func(*testing.B) func() (int, error)
	}{{"vs asynq", bareRound}, {"vs asynq and gorm rows", rowRound}, {"vs river", riverRound}} {
		b.Run(baseline.name, func(b *testing.B) {
			y := newBenchYard(b)
			boxes := y.boxes(roundBoxes)
			base := baseline.start(b)
			abbench.Rate(b, finishedRounds, "jobs/s", func() (int, error) { return y.round(boxes) }, base)
		})
	}
}

// benchYard is a whole queue whose worker tells when it starts a command.
type benchYard struct {
	*rig
	started chan time.Time
}

func newBenchYard(b *testing.B) *benchYard {
	y := &benchYard{newRig(b), make(chan time.Time, roundJobs)}
	p := &announcing{fake.New(fake.Options{State: y.State, PerNode: true}), y.started}
	w := worker.New(worker.Config{
		Store: y.Store, Redis: y.Redis, Images: []string{"*"}, Provider: p, Engine: "engine", Slots: roundSlots,
		Lease: 10 * time.Second, Grace: 5 * time.Second, Webhooks: y.Hooks, Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: y.Log,
	})
	y.Must(w.Start(b.Context()))
	b.Cleanup(func() {
		w.Stop(context.Background())
		y.Must(p.Close())
	})
	return y
}

// boxes creates n warm sandboxes.
func (y *benchYard) boxes(n int) []string {
	var boxes []string
	for range n {
		box, job := y.Create(jobs.CreateSandbox{})
		y.Wait(job)
		boxes = append(boxes, box)
	}
	return boxes
}

// round submits jobs and waits until they all have ended.
func (y *benchYard) round(boxes []string) (int, error) {
	var clients errgroup.Group
	clients.SetLimit(roundClients)
	for i := range roundJobs {
		clients.Go(func() error {
			_, err := y.Client.Submit(context.Background(), boxes[i%len(boxes)], &kind.Exec{Command: "fake:exit 0"}, jobsrig.Options())
			return err
		})
	}
	if err := clients.Wait(); err != nil {
		return 0, err
	}
	for range roundJobs {
		<-y.started
	}
	y.Eventually("every job has ended", func() bool {
		load, err := y.Store.Stats(context.Background())
		return err == nil && len(load.Jobs) == 0
	})
	return roundJobs, nil
}

// announcing tells when a command starts.
type announcing struct {
	*fake.Provider
	started chan<- time.Time
}

func (p *announcing) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := p.Provider.Open(ctx, id)
	return announcingBox{box, p.started}, err
}

type announcingBox struct {
	providers.Sandbox
	started chan<- time.Time
}

func (b announcingBox) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	b.started <- time.Now()
	return b.Sandbox.Run(ctx, cmd)
}

// bareAsynq is Asynq on a Redis of its own, with its defaults but for as many jobs at once as our worker has slots.
type bareAsynq struct {
	client    *asynq.Client
	inspector *asynq.Inspector
	started   chan time.Time
}

func newBareAsynq(b *testing.B, work asynq.HandlerFunc) *bareAsynq {
	network, addr, db := testenv.Redis(b)
	rdb := redis.NewClient(&redis.Options{Network: network, Addr: addr, DB: db})
	bare := &bareAsynq{asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb), make(chan time.Time, roundJobs)}
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{LogLevel: asynq.ErrorLevel, Concurrency: roundSlots})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		bare.started <- time.Now()
		return work(ctx, t)
	}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		server.Shutdown()
		rdb.Close()
	})
	return bare
}

// poll looks for a task's result until it is there.
func (a *bareAsynq) poll(id string, every time.Duration) ([]byte, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range tick.C {
		info, err := a.inspector.GetTaskInfo("default", id)
		if err != nil || info.State == asynq.TaskStateCompleted {
			return info.Result, err
		}
	}
	return nil, nil
}

func bareRound(b *testing.B) func() (int, error) {
	var working sync.WaitGroup
	bare := newBareAsynq(b, func(context.Context, *asynq.Task) error {
		working.Done()
		return nil
	})
	return bare.rounds(&working, func(id string) error {
		_, err := bare.client.Enqueue(asynq.NewTask("exec", []byte(id)), asynq.TaskID(id))
		return err
	})
}

func rowRound(b *testing.B) func() (int, error) {
	type work struct{ ID, State string }
	db, err := gorm.Open(postgres.Open(testenv.Database(b)), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		b.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { pool.Close() })
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(16)
	if err := db.AutoMigrate(&work{}); err != nil {
		b.Fatal(err)
	}
	var working sync.WaitGroup
	bare := newBareAsynq(b, func(_ context.Context, t *asynq.Task) error {
		defer working.Done()
		for _, state := range []string{"running", "done"} {
			if err := db.Model(&work{ID: string(t.Payload())}).Update("state", state).Error; err != nil {
				return err
			}
		}
		return nil
	})
	return bare.rounds(&working, func(id string) error {
		if err := db.Create(&work{ID: id, State: "queued"}).Error; err != nil {
			return err
		}
		_, err := bare.client.Enqueue(asynq.NewTask("exec", []byte(id)), asynq.TaskID(id))
		return err
	})
}

// rounds submits as many tasks as round does, and waits for working, which the handler counts down.
func (a *bareAsynq) rounds(working *sync.WaitGroup, submit func(id string) error) func() (int, error) {
	return func() (int, error) {
		working.Add(roundJobs)
		if err := submitRound(func() error { return submit(uuid.NewString()) }); err != nil {
			return 0, err
		}
		working.Wait()
		for range roundJobs {
			<-a.started
		}
		return roundJobs, nil
	}
}

// submitRound submits the jobs of one round.
func submitRound(submit func() error) error {
	var clients errgroup.Group
	clients.SetLimit(roundClients)
	for range roundJobs {
		clients.Go(submit)
	}
	return clients.Wait()
}
