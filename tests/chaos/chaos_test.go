//go:build chaos

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sandyard/tests/chaos/mutate"
)

// What a run is made of; make chaos sets them.
//
//nolint:gochecknoglobals // flags of a test binary
var (
	seedFlag     = flag.Uint64("seed", 0, "the number that makes the plan; 0 = a new one")
	lengthFlag   = flag.Duration("length", 2*time.Minute, "how long there are faults")
	clientsFlag  = flag.Int("clients", 6, "how many clients there are")
	providerFlag = flag.String("provider", onDocker, "what sandboxes live on: docker or local")
)

// TestChaos is the soak.
func TestChaos(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	r := &run{t: t, seed: seed, length: *lengthFlag, bin: build(t, ""), patience: 3 * time.Minute}
	r.logf("seed %d: make chaos SEED=%d LENGTH=%v PROVIDER=%s does the same again", seed, seed, r.length, *providerFlag)
	findings, err := r.do(t.Context())
	if err != nil {
		t.Errorf("the soak could not be finished: %v", err)
	}
	tellFindings(t, findings)
	if t.Failed() {
		t.Errorf("seed %d; the logs of the processes are in %s", seed, filepath.Join(r.sys.dir, "logs"))
		return
	}
	if err := os.RemoveAll(r.sys.dir); err != nil {
		t.Error(err)
	}
}

// tellFindings fails the test with what was broken, and some examples of each.
func tellFindings(t *testing.T, findings []finding) {
	shown := map[string]int{}
	for _, f := range findings {
		if shown[f.check]++; shown[f.check] <= 10 {
			t.Errorf("BROKEN: %s: %s", f.check, f.text)
		}
	}
	for check, n := range shown {
		t.Errorf("%d times broken: %s", n, check)
	}
}

// build makes the programs as make build does, or without one of the safeties.
func build(t *testing.T, without string) string {
	t.Helper()
	dir := t.TempDir()
	options := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"}
	if without != "" {
		root, err := filepath.Abs(filepath.Join("..", ".."))
		if err != nil {
			t.Fatal(err)
		}
		overlay, err := mutate.Overlay(root, t.TempDir(), without)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, "-overlay", overlay)
	}
	for out, packages := range map[string][]string{
		dir + "/":                 {"./cmd/api", "./cmd/worker", "./cmd/scheduler", "./cmd/guest", "./cmd/sandbox-shim", "./cmd/sandyard"},
		filepath.Join(dir, "sup"): {"./cmd/guest-sup"},
	} {
		args := slices.Concat(options, []string{"-o", out}, packages)
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the programs: %v\n%s", err, text)
		}
	}
	return dir
}

// inflicted is a fault that was done.
type inflicted struct {
	fault
	hit          string
	began, ended time.Time
}

// run is one soak.
type run struct {
	t        *testing.T
	seed     uint64
	length   time.Duration
	bin      string
	kinds    []faultKind   // nil = all there are
	patience time.Duration // until every job must have ended
	brief    bool          // nobody minds what is left
	long     bool          // faults last longer and come one after the other, and commands last, too: see inTurns and client

	sys     *system
	began   time.Time
	mu      sync.Mutex
	faults  []inflicted
	quietIn time.Duration
}

func (r *run) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "chaos: "+format+"\n", args...)
}

// do works off load and plan, waits until all is quiet, and judges.
func (r *run) do(ctx context.Context) (found []finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.length+10*time.Minute)
	defer cancel()
	if r.sys, err = startSystem(ctx, setup{bin: r.bin, provider: *providerFlag, liveRestore: r.seed%3 != 0, skewed: true}); err != nil {
		return nil, err
	}
	defer r.sys.close()
	h := startHooks()
	defer h.server.Close()
	crowd := newCrowd
	if r.brief {
		crowd = newClients
	}
	clients := crowd(r.sys, r.seed, h.server.URL, *clientsFlag)
	for _, c := range clients {
		c.long = r.long
	}
	r.began = time.Now()
	if err := errors.Join(r.storm(ctx, clients)...); err != nil {
		return nil, err
	}
	t := &trial{length: r.length, clients: clients, hooks: h, faults: r.faults}
	r.logf("%5.1fs the last fault is made good", time.Since(r.began).Seconds())
	r.silence(ctx, t)
	r.perish(ctx, t)
	r.quiet(ctx, t)
	r.logf("%5.1fs every job has ended", time.Since(r.began).Seconds())
	r.agree(ctx, t)
	r.logf("%5.1fs rows and resources agree", time.Since(r.began).Seconds())
	if err := errors.Join(r.lookAround(ctx, clients), r.askBuilt(ctx, t)); err != nil {
		return t.findings, err
	}
	r.quiet(ctx, t)
	if !r.brief {
		if err := r.emptied(ctx, t); err != nil {
			return t.findings, err
		}
	}
	if err := r.collect(ctx, t); err != nil {
		return t.findings, err
	}
	t.judge()
	if !r.brief {
		r.tidy(ctx, t)
	}
	r.report(t)
	return t.findings, nil
}

// storm lets clients and faults loose on the system until both are through.
func (r *run) storm(ctx context.Context, clients []*client) []error {
	load, over := context.WithTimeout(ctx, r.length)
	defer over()
	var all sync.WaitGroup
	errs := make([]error, len(clients)+1)
	for i, c := range clients {
		all.Go(func() { errs[i] = c.work(ctx, load) })
	}
	all.Go(func() { errs[len(clients)] = r.afflict(ctx) })
	all.Wait()
	return errs
}

// afflict carries the plan out.
func (r *run) afflict(ctx context.Context) error {
	var all sync.WaitGroup
	var errs []error
	kinds := r.kinds
	if kinds == nil {
		kinds = append(usualKinds(), r.sys.host.deck()...)
	}
	plan := newPlan(r.seed, r.length, kinds, r.sys.wired())
	if r.long {
		plan = inTurns(plan, r.length)
	}
	for _, f := range plan {
		select {
		case <-time.After(time.Until(r.began.Add(f.at))):
		case <-ctx.Done():
			return ctx.Err()
		}
		all.Go(func() {
			began := time.Now()
			hit, err := r.sys.inflict(ctx, f)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.faults = append(r.faults, inflicted{f, hit, began, time.Now()})
			r.logf("%v: %s", f, hit)
			if err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// quiet waits until every job has ended.
func (r *run) quiet(ctx context.Context, t *trial) {
	began := time.Now()
	err := eventually(ctx, r.patience, "every job has ended", func() (bool, string) {
		h, err := readHistory(ctx, r.sys.postgres.DSN())
		if err != nil {
			return false, err.Error()
		}
		t.h = h
		left := append(h.unfinished(), h.openRuns()...)
		return len(left) == 0, fmt.Sprintf("%d have not", len(left))
	})
	if err != nil {
		t.find(checkEnds, "%v", err)
	}
	r.quietIn = max(r.quietIn, time.Since(began))
}

// lookAround reads what is left in the sandboxes that were left alone.
func (r *run) lookAround(ctx context.Context, clients []*client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, c := range clients {
		for _, b := range c.boxes {
			if b.gone {
				continue
			}
			if err := c.look(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect fetches every job as its client sees it.
func (r *run) collect(ctx context.Context, t *trial) error {
	var all sync.WaitGroup
	errs := make([]error, len(t.clients))
	for i, c := range t.clients {
		all.Go(func() {
			for _, o := range c.ops {
				if id := t.jobOf(o); id != "" && errs[i] == nil {
					o.end, errs[i] = c.job(ctx, id, "")
				}
			}
		})
	}
	all.Wait()
	var err, err2, err3 error
	logs := filepath.Join(r.sys.dir, "logs")
	t.finished, err = logLines(logs, "job finished")
	t.givenBack, err2 = logLines(logs, "job requeued")
	t.workers, err3 = nodesOf(logs)
	return errors.Join(append(errs, err, err2, err3)...)
}
