package faults_test

import (
	"context"
	"fmt"
	"io"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// way is what else than an error becomes of a call.
type way string

const (
	fails   way = ""             // an error, which says nothing of the outcome
	silent  way = "silent"       // on the wire: neither an answer nor an end
	limited way = "rate-limited" // by a provider that says when it may be asked again
	busy    way = "busy"
	hangs   way = "hang" // until the caller gives up
	slow    way = "slow"
)

// fault is one call that goes wrong: the k-th of its layer, before or after it has had its effect.
type fault struct {
	layer layer
	k     int
	after bool
	how   way
}

func (f fault) String() string {
	when := map[bool]string{false: "before", true: "after"}[f.after]
	if f.how != fails {
		when += "," + string(f.how)
	}
	return fmt.Sprintf("%s/%d/%s", f.layer, f.k, when)
}

// faultsAt are all that a layer's k-th call may suffer.
func faultsAt(l layer, k int) []fault {
	all := []fault{{layer: l, k: k}, {layer: l, k: k, after: true}}
	both := func(how way) {
		all = append(all, fault{layer: l, k: k, how: how}, fault{layer: l, k: k, after: true, how: how})
	}
	switch {
	case l == inProvider:
		all = append(all, fault{layer: l, k: k, how: limited}, fault{layer: l, k: k, how: busy})
		both(hangs)
		both(slow)
	case l == onWire && *faultHang:
		both(silent)
	}
	return all
}

// What faults of the provider ask of those who call it.
const (
	limit    = time.Second      // from a rate-limited call to the next of its sort
	slowness = time.Second      // of a slow call
	hanging  = 10 * time.Second // of a call that nobody gives up before
	deadline = 3 * time.Second  // of jobs while a call hangs, and of their workers' patience
)

// onProvider makes the k-th call of the provider go wrong, as its own fault layer does it.
func (s *switchboard) onProvider(op fake.Op, sandbox string) (fake.Fault, bool) {
	if op == fake.OpList || s.inBackground() {
		return fake.Fault{}, false
	}
	f, struck := s.strike(inProvider, string(op))
	s.mu.Lock()
	defer s.mu.Unlock()
	call := string(op) + " " + sandbox
	if until, known := s.rests[call]; known && time.Now().Before(until) {
		s.soon = fmt.Sprintf("%s, %v before its time", call, time.Until(until))
	}
	out := fake.Fault{After: f.after}
	switch {
	case !struck:
	case f.how == limited:
		s.rests[call] = time.Now().Add(limit)
		out.Err = &providers.Error{Class: providers.RateLimited, Message: "injected: too many calls", RetryAfter: limit}
	case f.how == busy:
		out.Err = providers.Busy.Errorf("injected: busy")
	case f.how == hangs:
		out.Hang, out.Delay = true, hanging
	case f.how == slow:
		out.Delay = slowness
	default:
		out.Err = providers.Unavailable.Errorf("injected: away")
	}
	return out, struck
}

// breakable is a provider whose builds may go wrong like its other calls.
type breakable struct {
	*jobsrig.Builder
}

// Build implements providers.Builder.
func (b *breakable) Build(ctx context.Context, build providers.Build, log io.Writer) error {
	return b.Call(ctx, "build", build.Image, func() error { return b.Builder.Build(ctx, build, log) })
}
