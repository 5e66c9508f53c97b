package app

import (
	"context"
	"log/slog"

	"sandyard/jobs"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
)

// RunScheduler runs a scheduler process until ctx ends.
func RunScheduler(ctx context.Context, c Scheduler, log *slog.Logger) error {
	p, err := Connect(ctx, c.Common, log)
	if err != nil {
		return err
	}
	defer p.Close(log)
	reg := NewRegistry()
	reg.MustRegister(p.Queue.Metrics())
	stop, err := serveHealth(c.Health, p, reg, log)
	if err != nil {
		return err
	}
	defer stop()
	Schedule(ctx, c, p, log)
	return nil
}

// Schedule runs the loops until ctx ends.
func Schedule(ctx context.Context, c Scheduler, p *Parts, log *slog.Logger) {
	offer := c.catalog()
	offer.Callbacks = c.rules()
	client := jobs.NewClient(p.Store, p.Queue, offer, log)
	s := scheduler.New(scheduler.Config{
		Store:     p.Store,
		Client:    client,
		Queue:     p.Queue,
		Webhooks:  webhook.New(p.Store, p.Queue, c.rules(), log),
		LostAfter: c.LostAfter,
		Retention: scheduler.Retention{History: c.Retention, Output: c.Output, Audit: c.Audit},
		Log:       log,
	})
	s.Start(ctx)
	<-ctx.Done()
	s.Stop()
}
