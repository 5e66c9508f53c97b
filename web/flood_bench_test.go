package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/abbench"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers/docker/pool"
)

const (
	floodBoxes  = 8
	floodSleeps = 256    // commands of the flood that run
	floodQueued = 10_000 // its jobs that wait
	floodCalls  = 100
)

// BenchmarkFlood measures a tenant's commands, and a flooding tenant's own timeouts, while commands of the flood run that
// last for a day and as many of its jobs as may wait do so. The baseline is the same before the flood.
func BenchmarkFlood(b *testing.B) {
	y := newDockerYard(b, pool.Config{})
	f := newFlood(y)
	scheduler := scheduler.New(scheduler.Config{
		Store: y.store, Client: f.client, Queue: y.queue, Webhooks: webhook.New(y.store, y.queue, netguard.Rules{}, discarded()), Log: discarded(),
	})
	scheduler.Start(b.Context())
	b.Cleanup(scheduler.Stop)
	box := y.box()
	command := abbench.Timed(func() error { return y.exec(box, "") })
	idle, idleTimeouts := measured(b, floodCalls, command), measured(b, 3, f.timeout)
	f.begin()
	b.Run("exec true of a neighbour/vs idle", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 1, Ours: floodCalls, Base: floodCalls - 1}, command, replayed(idle))
	})
	b.Run("its own timeout, late by/vs idle", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 1, Ours: 3, Base: 2}, f.timeout, replayed(idleTimeouts))
	})
}

func discarded() *slog.Logger { return slog.New(slog.DiscardHandler) }

func measured(b *testing.B, n int, way abbench.Way) (took []time.Duration) {
	b.Helper()
	for range n {
		took = append(took, must(way())(b))
	}
	return took
}

// replayed is a way that takes as long as it took before.
func replayed(took []time.Duration) abbench.Way {
	return func() (time.Duration, error) {
		d := took[0]
		took = append(took[1:], d)
		return d, nil
	}
}

// flood is a tenant that takes what it can get.
type flood struct {
	y      *dockerYard
	client *jobs.Client
	o      jobs.Options
}

func newFlood(y *dockerYard) *flood {
	conn := must(pgx.Connect(context.Background(), y.dsn))(y.b)
	must(conn.Exec(context.Background(), "INSERT INTO tenants (id, name, max_sandboxes, max_queued, webhook_secret) VALUES ('flood', 'flood', 100, 20000, 'whsec_')"))(y.b)
	check(y.b, conn.Close(context.Background()))
	catalog := jobs.Catalog{Providers: []string{"docker"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": benchImage}}
	return &flood{
		y: y, client: jobs.NewClient(y.store, y.queue, catalog, discarded()),
		o: jobs.Options{TenantID: "flood", Actor: "flood", Parallel: true},
	}
}

// begin starts the commands, and fills the queue behind one of them in each sandbox.
func (f *flood) begin() {
	boxes := make([]string, floodBoxes)
	for i := range boxes {
		out := must(f.client.Create(context.Background(), jobs.CreateSandbox{}, f.o))(f.y.b)
		boxes[i] = out.Sandbox.ID
		f.await("a sandbox of the flood runs", func() bool { return f.state(boxes[i]) == models.SandboxRunning })
		f.y.b.Cleanup(func() {
			_, err := f.client.Delete(context.Background(), boxes[i], true, f.o)
			check(f.y.b, err)
			f.await("a sandbox of the flood is gone", func() bool { return f.state(boxes[i]) == models.SandboxDeleted })
		})
	}
	for i := range floodSleeps {
		f.sleep(boxes[i%floodBoxes], i >= floodBoxes) // the first of each sandbox is in its order
	}
	f.await("the commands of the flood run", func() bool {
		list := must(f.y.store.Jobs(context.Background(), "flood", models.JobFilter{Kind: models.KindExec, State: models.Running, Limit: 1000}))(f.y.b)
		return len(list) == floodSleeps
	})
	var all sync.WaitGroup
	for c := range floodBoxes {
		all.Go(func() {
			for range floodQueued / floodBoxes {
				f.sleep(boxes[c], false)
			}
		})
	}
	all.Wait()
}

func (f *flood) sleep(box string, parallel bool) {
	o := f.o
	o.Parallel = parallel
	_, err := f.client.Submit(context.Background(), box, &kind.Exec{Argv: []string{"sleep", "86400"}, TimeoutSeconds: 86400}, o)
	if err != nil {
		f.y.b.Error(err)
	}
}

func (f *flood) state(box string) models.SandboxState {
	return must(f.y.store.Sandbox(context.Background(), "flood", box))(f.y.b).State
}

func (f *flood) await(what string, ok func() bool) {
	f.y.b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.y.b.Fatalf("not within two minutes: %s", what)
		}
	}
}

// timeout makes a sandbox that ends by its timeout, and says how late it was gone.
func (f *flood) timeout() (time.Duration, error) {
	out, err := f.client.Create(context.Background(), jobs.CreateSandbox{TimeoutSeconds: 1}, f.o)
	if err != nil {
		return 0, err
	}
	f.await("the sandbox is gone", func() bool { return f.state(out.Sandbox.ID) == models.SandboxDeleted })
	box, err := f.y.store.Sandbox(context.Background(), "flood", out.Sandbox.ID)
	if err != nil || box.EndedAt == nil {
		return 0, fmt.Errorf("no end of the sandbox is written down: %w", err)
	}
	return box.EndedAt.Sub(box.ExpiresAt), nil
}
