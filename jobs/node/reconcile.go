package node

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/providers"
)

// Reconciler compares what a provider has with what the tables say it should have, and makes good the difference. It
// exists because no clean-up is certain: a create may be finished after its caller has died, a container may be killed
// or removed behind our back, an engine may come back with what was given up for lost.
//
// One worker of an engine does it at a time. Each step is conditional, so that two at once are harmless.
type Reconciler struct {
	Base
	every time.Duration
	grace time.Duration
	refer func(sandboxID, ref string)
	lead  *loop.Leader
	// since is when a difference was first seen, by the sandbox's id. Clocks of engines are not believed.
	since    map[string]time.Time
	told     map[string]time.Time // the ends of sandboxes that the provider was last told
	removals *removals
	sweeps   errgroup.Group // one at a time
}

const (
	// reconcileTimeout bounds one comparison.
	reconcileTimeout = 2 * time.Minute
	// sweepTimeout bounds what the provider removes by itself.
	sweepTimeout = 2 * time.Minute
)

// NewReconciler makes a reconciler that compares so often, and leaves what may pass by itself alone for the grace.
// Refer tells the provider which id of its backend a sandbox has.
func NewReconciler(b Base, every, grace time.Duration, refer func(sandboxID, ref string)) *Reconciler {
	// A lease as long as the pause between two comparisons: every worker of the engine asks for it.
	lease := max(loop.LeaderLease, every)
	name := "reconcile/" + b.Node.Provider + "/" + b.Node.Engine
	r := &Reconciler{
		Base: b, every: every, grace: grace, refer: refer, lead: loop.NewLeader(b.Store, name, lease, b.Log),
		since: map[string]time.Time{}, told: map[string]time.Time{}, removals: newRemovals(),
	}
	r.sweeps.SetLimit(1)
	return r
}

// Run keeps the engine and the tables alike until the life ends.
func (r *Reconciler) Run(ctx context.Context) {
	ctx, cancel := r.Life.Context(ctx)
	defer cancel()
	var leading sync.WaitGroup
	defer leading.Wait()
	leading.Go(func() { r.lead.Run(ctx) })
	r.loop(ctx)
}

func (r *Reconciler) loop(ctx context.Context) {
	t := time.NewTicker(r.every)
	defer t.Stop()
	defer r.removals.wait()
	defer func() { _ = r.sweeps.Wait() }()
	for r.lead.Await(ctx) {
		if err := errors.Join(r.compare(ctx), r.removals.report()); err != nil && ctx.Err() == nil {
			// An engine that does not answer proves nothing about its sandboxes.
			r.Log.WarnContext(ctx, "engine not reconciled, trying again", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// differences are what one comparison has found.
type differences struct {
	orphans []string                       // resources without a sandbox
	lost    map[string]string              // sandboxes without a living resource, and why
	changed map[string]models.SandboxState // sandboxes whose resource is in another state
	bodies  map[string]bool                // of the lost: something is left to remove
}

// compare removes and sweeps beside the comparisons: what hangs there is no reason to notice no losses.
func (r *Reconciler) compare(whole context.Context) error {
	r.sweep(whole)
	ctx, cancel := context.WithTimeout(whole, reconcileTimeout)
	defer cancel()
	busy := r.removals.busy() // what ends from now on may still be listed
	// In this order: a row that was there before the list must be in it, and a resource in the list had its row before
	// it.
	rows, err := r.Store.OnEngine(ctx, r.Node)
	if err != nil {
		return err
	}
	found, err := r.Provider.List(ctx)
	if err != nil {
		return err
	}
	d, err := r.differ(ctx, rows, found)
	if err != nil {
		return err
	}
	was := map[string]models.SandboxState{}
	for _, b := range rows {
		was[b.ID] = b.State
	}
	err = r.ask(ctx, rows, d)
	bodies, lostErr := r.lose(ctx, d)
	err = errors.Join(err, lostErr, r.observe(ctx, d, was), r.prolong(ctx, rows, found))
	r.removals.begin(whole, append(d.orphans, bodies...), busy, func(ctx context.Context, id string) error {
		return r.remove(ctx, id, d.bodies[id])
	})
	return err
}

// sweep lets the provider remove what is no sandbox's.
func (r *Reconciler) sweep(ctx context.Context) {
	s, ok := r.Provider.(providers.Sweeper)
	if !ok {
		return
	}
	r.sweeps.TryGo(func() error {
		ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
		defer cancel()
		removed, err := s.Sweep(ctx)
		for sort, n := range removed {
			r.Metrics.reconciled.WithLabelValues(sort).Add(float64(n))
		}
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			r.Log.WarnContext(ctx, "engine leftovers not removed, trying again", "error", err)
		}
		return nil
	})
}

// differ finds what is different, and of what may pass what has been so for longer than the grace.
func (r *Reconciler) differ(
	ctx context.Context,
	rows []models.Sandbox,
	found []providers.Instance,
) (differences, error) {
	d := differences{lost: map[string]string{}, changed: map[string]models.SandboxState{}, bodies: map[string]bool{}}
	there := map[string]providers.Instance{}
	ids := make([]string, 0, len(found))
	for _, i := range found {
		there[i.ID] = i
		if i.State != providers.StateUnknown {
			ids = append(ids, i.ID)
		}
	}
	unwanted, err := r.Store.Unwanted(ctx, r.Node, ids)
	if err != nil {
		return d, err
	}
	seen := map[string]bool{}
	for _, id := range unwanted {
		seen[id] = true
		if r.lasts(id) {
			d.orphans = append(d.orphans, id)
		}
	}
	for _, b := range rows {
		i, ok := there[b.ID]
		switch {
		case !ok:
			seen[b.ID] = true
			if r.lasts(b.ID) {
				d.lost[b.ID] = providers.EndedByRemoval
			}
		case i.State == providers.StateUnknown: // it proves nothing
		case i.State == providers.StateStopped:
			d.lost[b.ID], d.bodies[b.ID] = cmp.Or(i.Ended, "it died or was killed outside Sandyard"), true
		case string(i.State) != string(b.State):
			seen[b.ID] = true
			if r.lasts(b.ID) {
				d.changed[b.ID] = models.SandboxState(i.State)
			}
		}
	}
	for id := range r.since {
		if !seen[id] {
			delete(r.since, id)
		}
	}
	return d, nil
}

// lasts says whether a difference has lasted for the grace.
func (r *Reconciler) lasts(id string) bool {
	first, known := r.since[id]
	if !known {
		r.since[id] = time.Now()
		return r.grace == 0
	}
	return time.Since(first) >= r.grace
}

func (r *Reconciler) remove(ctx context.Context, id string, body bool) error {
	err := r.Provider.Delete(ctx, id)
	if err == nil && !body {
		r.note(ctx, "orphan", id, "resource without a sandbox removed")
	}
	return err
}

// askTimeout bounds the question after one sandbox.
const askTimeout = 30 * time.Second

// ask takes out of what is lost what the backend still has when it is asked for that alone: the lists of vendors lag.
// Where it does not say, another round decides.
func (r *Reconciler) ask(ctx context.Context, rows []models.Sandbox, d differences) error {
	if _, ok := r.Provider.(providers.Referrer); !ok {
		return nil
	}
	refs := map[string]string{}
	for _, b := range rows {
		if _, lost := d.lost[b.ID]; lost && !d.bodies[b.ID] {
			refs[b.ID] = ""
			if b.ProviderRef != nil {
				refs[b.ID] = *b.ProviderRef
			}
		}
	}
	return loop.Each(ctx, r.Store.Ready, slices.Sorted(maps.Keys(refs)), func(id string) error {
		r.refer(id, refs[id])
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, err := r.Provider.Open(ctx, id)
		if err != nil && (errors.Is(err, providers.ErrNotFound) || errors.Is(err, providers.ErrLost)) {
			return nil
		}
		delete(d.lost, id)
		delete(r.since, id)
		if err != nil && !errors.Is(err, providers.ErrPaused) {
			return loop.OfSandbox(id, err)
		}
		return nil
	})
}

// lose ends what is lost, and returns those of which something is left.
func (r *Reconciler) lose(ctx context.Context, d differences) (bodies []string, err error) {
	err = loop.Each(ctx, r.Store.Ready, slices.Sorted(maps.Keys(d.lost)), func(id string) error {
		f, err := r.Store.MarkLost(ctx, id, r.Node, d.lost[id])
		if err != nil {
			return loop.OfSandbox(id, err)
		}
		r.note(ctx, "lost", id, "sandbox lost: "+d.lost[id])
		r.Security.Lost("", id, d.lost[id])
		r.Queue.Follow(ctx, f)
		if d.bodies[id] {
			bodies = append(bodies, id)
		}
		return nil
	})
	return bodies, err
}

func (r *Reconciler) observe(ctx context.Context, d differences, was map[string]models.SandboxState) error {
	var errs []error
	for id, seen := range d.changed {
		changed, tasks, err := r.Store.Observe(ctx, id, was[id], seen)
		errs = append(errs, err)
		r.Queue.Send(ctx, tasks)
		if changed {
			r.note(ctx, "repaired", id, "sandbox became "+string(seen)+" outside Sandyard")
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) note(ctx context.Context, what, sandboxID, message string) {
	r.Metrics.reconciled.WithLabelValues(what).Inc()
	r.Log.WarnContext(ctx, "reconciled", "what", what, "sandbox_id", sandboxID, "message", message)
}

// kindsOfDifference are the values of the metric's label, all of which are shown from the start.
func kindsOfDifference() []string {
	return []string{"orphan", "lost", "repaired", "image", "pool", "volume", "filler", "spool"}
}
