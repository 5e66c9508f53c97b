//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestSoak works a system without faults, and looks that nothing of it grows.
func TestSoak(t *testing.T) {
	r := &run{t: t, seed: *seedFlag, length: *lengthFlag, bin: build(t, ""), patience: time.Minute}
	l, findings, err := r.soak(t.Context())
	l.print(os.Stderr)
	if err != nil {
		t.Errorf("the soak could not be finished: %v", err)
	}
	for _, f := range findings {
		t.Errorf("BROKEN: %s: %s", f.check, f.text)
	}
	for _, name := range l.leaking() {
		t.Errorf("GROWS: %s, by %.1f in the second half", name, l.judged(name).growth())
	}
	if t.Failed() {
		t.Errorf("the logs of the processes are in %s", filepath.Join(r.sys.dir, "logs"))
		return
	}
	if err := os.RemoveAll(r.sys.dir); err != nil {
		t.Error(err)
	}
}

// TestSoakFindsLeaks runs it on workers that keep a goroutine and a file of every job.
func TestSoakFindsLeaks(t *testing.T) {
	r := &run{t: t, seed: 1, length: time.Minute, bin: build(t, "flatness"), patience: time.Minute, brief: true}
	l, _, err := r.soak(t.Context())
	if r.sys != nil {
		defer os.RemoveAll(r.sys.dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.print(os.Stderr)
	found := l.leaking()
	for _, want := range []string{"goroutines", "file descriptors"} {
		if !slices.ContainsFunc(found, func(name string) bool { return strings.HasPrefix(name, "worker") && strings.HasSuffix(name, want) }) {
			t.Errorf("no worker's %s grow, only %v", want, found)
		}
	}
}

// soak works off a steady load and reads the figures meanwhile.
func (r *run) soak(ctx context.Context) (ledger, []finding, error) {
	ctx, cancel := context.WithTimeout(ctx, r.length+10*time.Minute)
	defer cancel()
	l, t := ledger{}, &trial{}
	var err error
	if r.sys, err = startSystem(ctx, setup{bin: r.bin, provider: *providerFlag, liveRestore: true}); err != nil {
		return l, nil, err
	}
	defer r.sys.close()
	t.hooks = startHooks()
	defer t.hooks.server.Close()
	t.clients = newCrowd(r.sys, r.seed, t.hooks.server.URL, *clientsFlag)
	r.began = time.Now()
	err = r.steady(ctx, t.clients, l)
	if err != nil || r.brief {
		return l, nil, err
	}
	if lines, seen := answered(t.clients); seen <= lines/2 {
		t.find(checkTerminals, "%d lines were typed, and of %d the answer was seen", lines, seen)
	}
	r.silence(ctx, t)
	r.quiet(ctx, t)
	r.agree(ctx, t)
	r.tidy(ctx, t)
	return l, t.findings, nil
}

// steady lets the clients loose while figures are read and rows grow old.
func (r *run) steady(ctx context.Context, clients []*client, l ledger) error {
	load, over := context.WithTimeout(ctx, r.length)
	defer over()
	var all sync.WaitGroup
	errs := make([]error, len(clients)+2)
	for i, c := range clients {
		all.Go(func() { errs[i] = c.work(ctx, load) })
	}
	all.Go(func() {
		every := max(time.Second, r.length/120)
		var sent []float64
		errs[len(clients)] = each(load, every, func() error {
			sent = append(sent, clients[0].counted())
			l.add(loadFigure, "", sent[len(sent)-1]-sent[max(0, len(sent)-1-int(loadWindow/every))], 0, 0)
			return r.sys.figures(ctx, l)
		})
	})
	all.Go(func() {
		errs[len(clients)+1] = each(load, 10*time.Second, func() error { return r.sys.growOld(ctx) })
	})
	all.Wait()
	done := 0
	for _, c := range clients {
		done += len(c.ops)
	}
	r.logf("%d submissions of %d clients in %v", done, len(clients), r.length)
	return errors.Join(errs...)
}

// counted is how many operations all clients have begun.
func (c *client) counted() float64 {
	c.book.Lock()
	defer c.book.Unlock()
	return float64(*c.count)
}

// each calls f again and again until ctx ends.
func each(ctx context.Context, every time.Duration, f func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// growOld lets two years pass for what is older than a minute, so that the scheduler forgets it.
func (s *system) growOld(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SET session_replication_role = replica"); err != nil { // events are never changed, else
		return err
	}
	for table, column := range map[string]string{
		"sandboxes": "ended_at", "jobs": "finished_at", "events": "at", "idempotency_keys": "created_at", "port_grants": "expires_at",
		"terminal_tickets": "expires_at", "schedule_runs": "ended_at", "builds": "created_at", "usage_samples": "at",
		"audit_log": "at",
	} {
		old := column
		if column == "expires_at" { // far ahead
			old = "created_at"
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`UPDATE %[1]s SET %[2]s = now() - interval '2 years' WHERE ctid = ANY (ARRAY(SELECT ctid FROM %[1]s
			WHERE %[3]s < now() - interval '1 minute' AND %[2]s > now() - interval '1 month' FOR UPDATE SKIP LOCKED))`, table, column, old))
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}
