// Package scheduler turns what time or a crash has left into ordinary jobs: timeouts, idle sandboxes, lost workers and
// engines, lost tasks, schedules, and rows that are older than their retention.
//
// Any number of schedulers may run. One leads, and two at once are harmless, because every step is a conditional
// change.
package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/loop"
	"sandyard/jobs/queue"
	"sandyard/jobs/webhook"
	"sandyard/models"
)

// Config is what a scheduler is made of.
type Config struct {
	Store    *models.Store
	Client   *jobs.Client
	Queue    *queue.Queue
	Webhooks *webhook.Sender
	// LostAfter is how long sandboxes wait for a worker to come back to their engine; 0 = DefaultLostAfter.
	LostAfter time.Duration
	// Steady is how long the database must have been there before anybody's silence counts; 0 = as long as its workers'
	// leases ask for.
	Steady    time.Duration
	Retention Retention
	Log       *slog.Logger
}

// DefaultLostAfter is long enough to restart a machine.
const DefaultLostAfter = 5 * time.Minute

// Scheduler turns what time or a crash has left into ordinary jobs. Any number may run: one leads, and two at once are
// harmless, because every step is a conditional change that only one of them can make.
type Scheduler struct {
	store     *models.Store
	client    *jobs.Client
	queue     *queue.Queue
	webhooks  *webhook.Sender
	lostAfter time.Duration
	steady    time.Duration
	patient   bool // silence does not count yet
	retention Retention
	log       *slog.Logger
	leader    *loop.Leader
	round     models.Round // the sweep's, through the tasks in Redis
	handed    handedTasks  // of that round
	events    int64        // how far retention has come with the old ones
	quit      func()
	loops     sync.WaitGroup
}

// New makes a scheduler. Start sets it to work.
func New(c Config) *Scheduler {
	if c.LostAfter == 0 {
		c.LostAfter = DefaultLostAfter
	}
	return &Scheduler{
		store: c.Store, client: c.Client, queue: c.Queue, webhooks: c.Webhooks, lostAfter: c.LostAfter, steady: c.Steady,
		patient:   true,
		retention: c.Retention, log: c.Log,
		leader: loop.NewLeader(c.Store, "scheduler", loop.LeaderLease, c.Log),
	}
}

// Start begins the loops, which rest while another scheduler leads.
func (s *Scheduler) Start(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	leading, resign := context.WithCancel(context.WithoutCancel(ctx))
	for _, l := range []struct {
		name  string
		every time.Duration
		tick  func(context.Context) error
	}{
		{"silent workers", time.Second, s.recoverLeases},
		{"queue deadlines", time.Second, s.expireQueued},
		{"lost tasks", time.Second, s.resendLost},
		{"backlog", time.Second, s.dispatchBacklog},
		{"timeouts", 250 * time.Millisecond, s.fireTimeouts},
		{"idle", 500 * time.Millisecond, s.reapIdle},
		{"lifetimes", time.Second, s.endLifetimes},
		{"paused", time.Second, s.reapPaused},
		{"deletes", 5 * time.Second, s.resumeDeletes},
		{"lost", time.Second, s.endLost},
		{"recreate", 500 * time.Millisecond, s.recreate},
		{"schedules", 250 * time.Millisecond, s.fireSchedules},
		{"schedule runs", 250 * time.Millisecond, s.submitRuns},
		{"schedule ends", time.Second, s.settleRuns},
		{"usage", 5 * time.Second, s.foldUsage},
		{"webhooks", time.Second, s.dispatchWebhooks},
		{"housekeeping", time.Minute, s.keepHouse},
		{"retention", time.Minute, s.retain},
	} {
		s.loops.Go(func() { s.loop(ctx, l.name, l.every, l.tick) })
	}
	var lead sync.WaitGroup
	lead.Go(func() { s.leader.Run(leading) })
	s.quit = sync.OnceFunc(func() { // the lease goes when the loops have ended
		stop()
		s.loops.Wait()
		resign()
		lead.Wait()
	})
	s.log.InfoContext(ctx, "scheduler started")
}

// Stop ends the loops after the tick they are in and lets another scheduler lead.
func (s *Scheduler) Stop() { s.quit() }

func (s *Scheduler) loop(ctx context.Context, name string, every time.Duration, tick func(context.Context) error) {
	t := time.NewTicker(every)
	defer t.Stop()
	for s.leader.Await(ctx) {
		if err := bounded(ctx, tick); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "scheduler loop failed, trying again", "loop", name, "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// tickTimeout keeps a loop alive whose question is never answered: the connection it was asked on may lead nowhere.
const tickTimeout = time.Minute

func bounded(ctx context.Context, tick func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	return tick(ctx)
}

func (s *Scheduler) dispatchWebhooks(ctx context.Context) error {
	s.webhooks.Dispatch(ctx, "")
	return nil
}
