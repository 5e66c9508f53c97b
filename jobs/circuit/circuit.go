// Package circuit is the circuit breaker of a worker's provider: while the provider cannot be used, no job is begun,
// and none loses an attempt to it.
package circuit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	// AskTimeout is how long a provider that is suspected may take to answer.
	AskTimeout = 10 * time.Second
	// askFirst is the time between the first two questions to a provider that is away, doubling up to askLast.
	askFirst = time.Second
	askLast  = 30 * time.Second
	// believed is how long an answer clears a provider of the suspicion: many jobs that fail at once ask once.
	believed = time.Second
	// keptOutcomes is how many outcomes the figures are made of.
	keptOutcomes = 200
)

// Breaker is the circuit breaker of a worker's provider, so that an outage delays its jobs and costs them no attempts.
//
// A job that fails as if the provider were away is a suspicion only: one sandbox that hangs is no outage. The provider
// is then asked a question of its own, and if it does not answer that either, it is away: no job is begun until it
// answers again, which one loop finds out.
type Breaker struct {
	ask       func(context.Context) error
	available func(bool) // is told of every answer
	log       *slog.Logger

	asking sync.Mutex // held while the provider is asked because of a suspicion

	mu      sync.Mutex
	away    error // why nothing is begun; nil = it answers
	since   time.Time
	asked   time.Time     // the last time, while it is away
	pause   time.Duration // from then to the next time
	cleared time.Time
	recent  [keptOutcomes]outcomeOf
	seen    int
}

// outcomeOf is how one attempt ended for the provider.
type outcomeOf struct {
	failed bool
	create time.Duration // how long a create took that succeeded
}

// AwayError says that a job was not begun, or did not come to its end, because the provider is away.
type AwayError struct {
	why  error
	Rest time.Duration
}

func (e *AwayError) Error() string {
	return "the provider is not available: " + providers.AsError(e.why).Message + "; the job waits"
}

func (e *AwayError) Unwrap() error { return e.why }

// New returns the breaker of a provider. Available is told of every answer.
func New(p providers.Provider, available func(bool), log *slog.Logger) *Breaker {
	return &Breaker{ask: func(ctx context.Context) error { return answers(ctx, p) }, available: available, log: log}
}

// answers asks the provider whether it is there and takes our key.
func answers(ctx context.Context, p providers.Provider) error {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	var err error
	if pinger, ok := p.(providers.Pinger); ok {
		err = pinger.Ping(ctx)
	} else {
		_, err = p.List(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = providers.Unavailable.Errorf("no answer within %v", AskTimeout)
	}
	return err
}

// isAway says whether an error is one of a provider that nobody can use.
func isAway(err error) bool {
	var p *providers.Error
	return errors.As(err, &p) && (p.Class == providers.Unavailable || p.Class == providers.Refused)
}

// suspicious says whether a job may have failed because the provider is away.
func suspicious(err error) bool {
	var p *providers.Error
	return isAway(err) || !errors.As(err, &p) && errors.Is(err, context.DeadlineExceeded)
}

// Begin answers an awayError while nothing is to be begun.
func (h *Breaker) Begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone()
}

// gone is the awayError of now. The caller holds mu.
func (h *Breaker) gone() error {
	if h.away == nil {
		return nil
	}
	rest := max(h.pause-time.Since(h.asked), 0) + askFirst/2
	return &AwayError{why: h.away, Rest: rest + rand.N(rest/2)}
}

// Suspect asks the provider because a job failed with err, and answers an awayError if it is away.
func (h *Breaker) Suspect(ctx context.Context, err error) error {
	if !suspicious(err) {
		return nil
	}
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	gone, clear := h.gone(), time.Since(h.cleared) < believed
	h.mu.Unlock()
	if gone != nil || clear {
		return gone
	}
	h.hear(ctx, h.ask(ctx))
	return h.Begin()
}

// hear takes in what the provider answered when it was asked. Any answer but that it cannot be used is a sign of life.
func (h *Breaker) hear(ctx context.Context, answer error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.available(!isAway(answer))
	if !isAway(answer) {
		if h.away != nil {
			h.log.InfoContext(ctx, "provider available again", "after", now.Sub(h.since).Round(time.Millisecond))
		}
		h.away, h.cleared, h.pause = nil, now, 0
		return
	}
	if h.away == nil {
		h.since = now
		h.log.ErrorContext(
			ctx,
			"provider not available, its jobs wait",
			"class",
			providers.AsError(answer).Class,
			"error",
			answer,
		)
	}
	h.away, h.asked, h.pause = answer, now, min(cmp.Or(2*h.pause, askFirst), askLast)
}

// Loop asks a provider that is away until it answers again, or ctx ends.
func (h *Breaker) Loop(ctx context.Context) {
	tick := time.NewTicker(askFirst / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.mu.Lock()
		due := h.away != nil && time.Since(h.asked) >= h.pause
		h.mu.Unlock()
		if !due {
			continue
		}
		h.asking.Lock()
		if answer := h.ask(ctx); ctx.Err() == nil {
			h.hear(ctx, answer)
		}
		h.asking.Unlock()
	}
}

// Note counts the outcome of an attempt.
func (h *Breaker) Note(kind string, err error, took time.Duration) {
	var p *providers.Error
	o := outcomeOf{failed: errors.As(err, &p) && p.Retryable() || suspicious(err)}
	if kind == models.KindCreate && err == nil {
		o.create = took
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recent[h.seen%keptOutcomes] = o
	h.seen++
}

// State is what the node's row says of the provider.
func (h *Breaker) State() models.NodeHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	var s models.NodeHealth
	if h.away != nil {
		s.Reason, s.AwayMS = string(providers.AsError(h.away).Class), time.Since(h.since).Milliseconds()
	}
	n := min(h.seen, keptOutcomes)
	var creates []time.Duration
	for _, o := range h.recent[:n] {
		if o.failed {
			s.Failed++
		}
		if o.create > 0 {
			creates = append(creates, o.create)
		}
	}
	s.Attempts = n
	if slices.Sort(creates); len(creates) > 0 {
		s.CreateMS = creates[len(creates)/2].Milliseconds()
	}
	return s
}
