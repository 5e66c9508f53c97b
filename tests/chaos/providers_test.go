//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// vendorFlag is the provider whose vendor is at fault.
//
//nolint:gochecknoglobals // a flag of a test binary
var vendorFlag = flag.String("vendor", "e2b", "the provider whose vendor is at fault: e2b or daytona")

// How many users each provider has.
const (
	steadyClients   = 2
	pressingClients = 3
)

// TestProviders is the soak of two providers, one of which has a vendor that drops answers, hangs, limits rates, answers
// nonsense and goes away. That vendor is another whole installation.
func TestProviders(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	r := &vendored{run: run{t: t, seed: seed, length: *lengthFlag, bin: build(t, ""), patience: 4 * time.Minute}, at: *vendorFlag}
	r.logf("seed %d: make soak-providers SEED=%d LENGTH=%v PROVIDER=%s does the same again", seed, seed, r.length, r.at)
	findings, err := r.do(t.Context())
	if err != nil {
		t.Errorf("the soak could not be finished: %v", err)
	}
	tellFindings(t, findings)
	if t.Failed() {
		for _, s := range []*system{r.sys, r.vendor} {
			if s != nil {
				t.Errorf("seed %d; the logs of the processes are in %s", seed, filepath.Join(s.dir, "logs"))
			}
		}
		return
	}
	if err := errors.Join(os.RemoveAll(r.sys.dir), os.RemoveAll(r.vendor.dir)); err != nil {
		t.Error(err)
	}
}

// TestProvidersProof runs it on programs that lack one safety each, which it must find out.
func TestProvidersProof(t *testing.T) {
	for _, safety := range []struct{ name, check string }{
		{"vendor's delete", checkRows}, {"vendor's commands", checkEffect}, {"isolation", checkOthers},
	} {
		t.Run(safety.name, func(t *testing.T) {
			r := &vendored{run: run{
				t: t, seed: max(1, *seedFlag), length: proofLength, bin: build(t, safety.name), patience: 2 * time.Minute, brief: true,
			}, at: "e2b"}
			found, err := r.do(t.Context())
			for _, s := range []*system{r.sys, r.vendor} {
				if s != nil {
					defer os.RemoveAll(s.dir)
				}
			}
			byCheck, example := map[string]int{}, ""
			for _, f := range found {
				if byCheck[f.check]++; f.check == safety.check && example == "" {
					example = f.text
				}
			}
			t.Logf("without %s: %s", safety.name, counts(byCheck))
			if example == "" {
				t.Fatalf("without %s nothing broke of %q: %v", safety.name, safety.check, err)
			}
			t.Logf("such as: %s", strings.TrimSpace(example))
		})
	}
}

// vendored is a run of an installation with a provider over the API of another.
type vendored struct {
	run

	at      string // that provider
	vendor  *system
	weather *weather
}

// begin starts both installations, and the doors between them.
func (r *vendored) begin(ctx context.Context) (err error) {
	if r.vendor, err = startSystem(ctx, setup{bin: r.bin, provider: onLocal}); err != nil {
		return err
	}
	if err := r.vendor.keepOne(); err != nil {
		return err
	}
	first := r.vendor.processes[0]
	var edge struct{ Addr string }
	if err := json.Unmarshal([]byte("{"+first.said(`"msg":"edge listens",`)), &edge); err != nil {
		return fmt.Errorf("find the vendor's edge: %w", err)
	}
	r.weather = newWeather(r.seed)
	api, err := r.weather.open(first.address())
	if err != nil {
		return err
	}
	inside, err := r.weather.open(edge.Addr)
	if err != nil {
		return err
	}
	settings := []string{"SANDBOX_PROVIDERS=" + onLocal + "," + r.at}
	switch r.at {
	case "e2b":
		settings = append(settings, "E2B_API_KEY="+r.vendor.key, "E2B_API_URL="+api.url(), "E2B_SANDBOX_URL="+inside.url())
	case "daytona":
		settings = append(settings, "DAYTONA_API_KEY="+r.vendor.key, "DAYTONA_API_URL="+api.url()+"/daytona/api")
	default:
		return fmt.Errorf("there are the providers e2b and daytona, and not %q", r.at)
	}
	r.sys, err = startSystem(ctx, setup{bin: r.bin, provider: onLocal, extra: settings})
	return err
}

func (r *vendored) end() {
	if r.sys != nil {
		r.sys.close()
	}
	if r.weather != nil {
		r.weather.close()
	}
	if r.vendor != nil {
		r.vendor.close()
	}
}

// clients are those of both providers.
func (r *vendored) clients() []*client {
	all := newClients(r.sys, r.seed, "", steadyClients+pressingClients)
	for i, c := range all {
		if c.at, c.work = r.at, c.pressing; i < steadyClients {
			c.at, c.work = onLocal, c.steady
		}
	}
	return all
}

// do works load and weather off, waits until all is quiet, and judges.
func (r *vendored) do(ctx context.Context) (found []finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.length+15*time.Minute)
	defer cancel()
	defer r.end()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	clients := r.clients()
	r.began = time.Now()
	if err := errors.Join(r.play(ctx, clients)...); err != nil {
		return nil, err
	}
	t := &trial{length: r.length, clients: clients, faults: r.faults}
	r.quiet(ctx, t)
	r.logf("%5.1fs every job has ended", time.Since(r.began).Seconds())
	r.agreeAll(ctx, t)
	r.logf("%5.1fs rows, vendor and resources agree", time.Since(r.began).Seconds())
	if err := r.lookAround(ctx, clients); err != nil {
		return t.findings, err
	}
	r.quiet(ctx, t)
	if err := r.collect(ctx, t); err != nil {
		return t.findings, err
	}
	r.judge(t)
	r.table(t)
	if !r.brief {
		r.tidyAll(ctx, t)
	}
	return t.findings, nil
}

// play lets clients loose on the installation while the weather changes, and kills a worker halfway.
func (r *vendored) play(ctx context.Context, clients []*client) []error {
	load, over := context.WithCancel(ctx)
	defer over()
	var all sync.WaitGroup
	errs := make([]error, len(clients)+2)
	for i, c := range clients {
		all.Go(func() { errs[i] = c.work(ctx, load) })
	}
	all.Go(func() {
		defer over()
		errs[len(clients)] = r.weather.play(ctx, newForecast(r.seed, r.length), r.logf)
	})
	all.Go(func() {
		if pass(load, r.length/2) == nil { // else something has failed, and says so
			errs[len(clients)+1] = r.killOne(ctx)
		}
	})
	all.Wait()
	return errs
}

// killOne kills a worker, and starts another in its place.
func (r *vendored) killOne(ctx context.Context) error {
	f := fault{at: r.length / 2, kind: killWorker, target: int(r.seed % workers), lasts: time.Second}
	began := time.Now()
	hit, err := r.sys.inflict(ctx, f)
	r.faults = append(r.faults, inflicted{f, hit, began, time.Now()})
	r.logf("%v: %s", f, hit)
	return err
}
