package loop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandyard/models"
)

const (
	// LeaderLease is how long the work waits for a leader that has died; one that stops gives the lease back.
	LeaderLease = 1500 * time.Millisecond
	// leaderBeats is how often in its time a lease is renewed, and asked for by those that do not have it.
	leaderBeats = 3
)

// Leader lets one of any number of processes do some work. Two that believe it for a moment are harmless, for each step
// of the work is a conditional change of its own; the lease saves the others the questions.
type Leader struct {
	store        *models.Store
	name, holder string
	lease        time.Duration
	log          *slog.Logger

	mu    sync.Mutex
	until time.Time     // we lead until then
	won   chan struct{} // closed while we lead
	last  models.Lease  // what we were told when we took it last
}

// NewLeader returns one of the candidates for the work of that name.
func NewLeader(store *models.Store, name string, lease time.Duration, log *slog.Logger) *Leader {
	return &Leader{store: store, name: name, holder: models.NewID("l"), lease: lease, log: log, won: make(chan struct{})}
}

// Run takes the lease, and takes it again, until ctx ends; then it gives it back.
func (l *Leader) Run(ctx context.Context) {
	beat := time.NewTicker(l.lease / leaderBeats)
	defer beat.Stop()
	for {
		l.try(ctx)
		select {
		case <-beat.C:
		case <-ctx.Done():
			l.resign(context.WithoutCancel(ctx))
			return
		}
	}
}

func (l *Leader) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	asked := time.Now() // the lease began after that
	got, err := l.store.TakeLease(ctx, l.name, l.holder, l.lease)
	switch {
	case err != nil:
		l.log.WarnContext(ctx, "leader lease not renewed", "lease", l.name, "error", err)
	case got.Ours:
		l.lead(asked.Add(l.lease), got)
	default:
		l.lead(time.Time{}, got)
	}
}

// lead notes until when we lead, and what we were told with that.
func (l *Leader) lead(until time.Time, told models.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, is := !l.until.IsZero(), !until.IsZero()
	l.until, l.last = until, told
	switch {
	case is && !was:
		close(l.won)
		l.log.Info("leadership taken by this process", "lease", l.name)
	case was && !is:
		l.won = make(chan struct{})
		l.log.Info("leadership lost to another process", "lease", l.name)
	}
}

// Heard returns what we were told when we took the lease last; the zero value where we do not lead.
func (l *Leader) Heard() models.Lease {
	if ours, _ := l.leads(); !ours {
		return models.Lease{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// leads says whether we lead now, and what to wait on where we do not.
func (l *Leader) leads() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.until.IsZero() && time.Now().After(l.until) { // the database was away, or this process was stopped
		l.until, l.won = time.Time{}, make(chan struct{})
	}
	return !l.until.IsZero(), l.won
}

// Await returns true as soon as we lead, and false when ctx has ended.
func (l *Leader) Await(ctx context.Context) bool {
	for {
		ours, won := l.leads()
		if ctx.Err() != nil {
			return false
		}
		if ours {
			return true
		}
		select {
		case <-won:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *Leader) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	if err := l.store.DropLease(ctx, l.name, l.holder); err != nil {
		l.log.WarnContext(ctx, "leader lease not released, it expires by itself", "lease", l.name, "error", err)
	}
}
