package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandyard/models"
)

// Scheduler turns what time or a crash has left into ordinary jobs. Any number may run: every step is a conditional
// change that only one of them can make.
type Scheduler struct {
	store    *models.Store
	client   *Client
	queue    *Queue
	webhooks *Webhooks
	log      *slog.Logger
	quit     context.CancelFunc
	loops    sync.WaitGroup
}

// NewScheduler makes a scheduler. Start sets it to work.
func NewScheduler(store *models.Store, client *Client, queue *Queue, webhooks *Webhooks, log *slog.Logger) *Scheduler {
	return &Scheduler{store: store, client: client, queue: queue, webhooks: webhooks, log: log}
}

// Start begins the loops.
func (s *Scheduler) Start(ctx context.Context) {
	ctx, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	for _, l := range []struct {
		name  string
		every time.Duration
		tick  func(context.Context) error
	}{
		{"sweep", time.Second, s.sweep},
		{"timeouts", 250 * time.Millisecond, s.fireTimeouts},
		{"idle", 500 * time.Millisecond, s.reapIdle},
		{"deletes", 5 * time.Second, s.resumeDeletes},
		{"webhooks", time.Second, s.dispatchWebhooks},
		{"housekeeping", time.Minute, s.keepHouse},
	} {
		s.loops.Go(func() { s.loop(ctx, l.name, l.every, l.tick) })
	}
	s.log.InfoContext(ctx, "scheduler started")
}

// Stop ends the loops after the tick they are in.
func (s *Scheduler) Stop() {
	s.quit()
	s.loops.Wait()
}

func (s *Scheduler) loop(ctx context.Context, name string, every time.Duration, tick func(context.Context) error) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := tick(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "loop failed, trying again", "loop", name, "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Scheduler) dispatchWebhooks(ctx context.Context) error {
	s.webhooks.dispatch(ctx)
	return nil
}

// keepHouse forgets what nobody needs any more.
func (s *Scheduler) keepHouse(ctx context.Context) error {
	const nodeAge, keyAge = time.Minute, 24 * time.Hour
	nodes, err := s.store.PruneNodes(ctx, nodeAge)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := s.queue.forget(ctx, "node-"+n); err != nil {
			return err
		}
	}
	return s.store.PruneKeys(ctx, keyAge)
}
