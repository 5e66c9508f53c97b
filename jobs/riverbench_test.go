package jobs_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"sandyard/dev/testenv"
)

// riverJob does nothing.
type riverJob struct {
	ID string `json:"id"`
}

func (riverJob) Kind() string { return "exec" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]

	working *sync.WaitGroup
}

func (w *riverWorker) Work(context.Context, *river.Job[riverJob]) error {
	w.working.Done()
	return nil
}

// riverRound submits the jobs of a round to River, one by one as clients would, and waits until the database says that all
// have ended. River fetches as often as it can.
func riverRound(b *testing.B) func() (int, error) {
	pool, client, working := newRiver(b)
	return func() (int, error) {
		ctx := context.Background()
		working.Add(roundJobs)
		err := submitRound(func() error {
			_, err := client.Insert(ctx, riverJob{ID: "job"}, nil)
			return err
		})
		if err != nil {
			return 0, err
		}
		working.Wait()
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for open := true; open; <-poll.C {
			err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE finalized_at IS NULL)").Scan(&open)
			if err != nil {
				return 0, err
			}
		}
		return roundJobs, nil
	}
}

func newRiver(b *testing.B) (*pgxpool.Pool, *river.Client[pgx.Tx], *sync.WaitGroup) {
	ctx, working := context.Background(), &sync.WaitGroup{}
	pool, err := pgxpool.New(ctx, testenv.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{working: working})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: roundSlots}}, Workers: workers,
		FetchCooldown: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := client.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	return pool, client, working
}
