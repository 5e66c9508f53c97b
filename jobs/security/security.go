// Package security counts what may be an attack, such as refused connections, for operators and the audit page.
package security

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/providers"
)

const (
	// securityEvery is how long events wait to be written together.
	securityEvery = time.Second
	// securityPatience is how long PostgreSQL may take for them.
	securityPatience = 5 * time.Second
	// maxSecurity bounds the events that wait, and the sandboxes whose failures are counted.
	maxSecurity = 10_000
	// failing jobs of one sandbox within failingSpan are an event.
	failing     = 5
	failingSpan = time.Minute
)

// Counter counts what may be an attack. Events of one tenant and kind are one until they are written, so that nobody
// fills memory or tables with them. A process that is killed loses those of the last second.
type Counter struct {
	store   *models.Store
	counter *prometheus.CounterVec
	log     *slog.Logger
	life    *loop.Life
	work    sync.WaitGroup

	mu      sync.Mutex
	waiting map[securityKey]*models.SecurityEvent
	failed  map[string]failures // by sandbox
}

type securityKey struct{ tenant, kind, sandbox string }

type failures struct {
	n     int
	since time.Time
}

// New returns a Security that writes to store until Close.
func New(store *models.Store, log *slog.Logger) *Counter {
	s := &Counter{
		store: store, log: log, life: loop.NewLife(),
		waiting: map[securityKey]*models.SecurityEvent{}, failed: map[string]failures{},
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandyard_security_events_total", Help: "Security events, by kind.",
		}, []string{"kind"}),
	}
	for _, kind := range models.SecurityKinds() {
		s.counter.WithLabelValues(kind)
	}
	s.work.Go(func() {
		s.life.Every(securityEvery, nil, s.flush)
		s.flush()
	})
	return s
}

// Metrics count the events of this process.
func (s *Counter) Metrics() prometheus.Collector { return s.counter }

// Close writes what waits.
func (s *Counter) Close() {
	s.life.End()
	s.work.Wait()
}

// Note counts an event. A nil Security counts none.
func (s *Counter) Note(e models.SecurityEvent) {
	if s == nil {
		return
	}
	e.Times = max(1, e.Times)
	s.counter.WithLabelValues(e.Kind).Add(float64(e.Times))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e)
}

// add is called with the lock. A sandbox keeps apart only what has no tenant yet.
func (s *Counter) add(e models.SecurityEvent) {
	k := securityKey{tenant: e.TenantID, kind: e.Kind}
	if e.TenantID == "" {
		k.sandbox = e.SandboxID
	}
	if known := s.waiting[k]; known != nil {
		e.Times += known.Times
	} else if len(s.waiting) >= maxSecurity {
		return
	}
	s.waiting[k] = &e
}

func (s *Counter) flush() {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = map[securityKey]*models.SecurityEvent{}
	s.mu.Unlock()
	events := make([]models.SecurityEvent, 0, len(waiting))
	for _, e := range waiting {
		events = append(events, *e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), securityPatience)
	defer cancel()
	err := s.store.AddSecurityEvents(ctx, events)
	if err == nil {
		return
	}
	s.log.WarnContext(ctx, "security events not stored, trying again", "error", err)
	if pg.IsRefused(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.add(e)
	}
}

// Ended looks at how a job has ended.
func (s *Counter) Ended(o models.Outcome, j models.Job) {
	if s == nil {
		return
	}
	e := models.SecurityEvent{TenantID: j.TenantID, Actor: j.Actor, SandboxID: j.SandboxID}
	note := func(kind, detail string) {
		e.Kind, e.Detail = kind, detail
		s.Note(e)
	}
	if outOfMemory(o.Result) {
		note(models.OutOfMemory, j.Kind)
	}
	if o.Error != nil {
		switch providers.Class(o.Error.Code) {
		case providers.InvalidPath:
			note(models.PathRefused, j.Kind)
		case providers.NoSpace:
			note(models.OutOfDisk, j.Kind)
		}
	}
	if o.Sandbox.To == models.SandboxLost {
		s.Lost(j.TenantID, j.SandboxID, o.Sandbox.Reason)
	}
	if breaks(o) && s.fails(j.SandboxID) {
		note(models.SandboxFailing, string(o.State))
	}
}

// breaks says whether an end speaks against the sandbox, and not only against what was asked for, such as a file that
// is not there.
func breaks(o models.Outcome) bool {
	switch o.State {
	case models.Lost, models.TimedOut:
		return true
	case models.Failed:
		if o.Error == nil {
			return false
		}
		code := providers.Class(o.Error.Code)
		return o.Error.Retryable || code == providers.Internal || code == providers.NoSpace
	}
	return false
}

// outOfMemory says whether the kernel has ended a program of which this is the result.
func outOfMemory(result any) bool {
	switch r := result.(type) {
	case kind.ExecResult:
		return r.OOMKilled
	case providers.Exec:
		return r.OOMKilled
	}
	return false
}

// Lost looks at why a sandbox was lost. An empty tenant is looked up.
func (s *Counter) Lost(tenantID, sandboxID, reason string) {
	if strings.Contains(reason, providers.EndedByMemory) {
		s.Note(models.SecurityEvent{TenantID: tenantID, Kind: models.OutOfMemory, SandboxID: sandboxID, Detail: "sandbox"})
	}
}

// fails counts a failure of a sandbox, and says whether it is one too many.
func (s *Counter) fails(sandboxID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) >= maxSecurity {
		clear(s.failed)
	}
	f := s.failed[sandboxID]
	if time.Since(f.since) > failingSpan {
		f = failures{since: time.Now()}
	}
	f.n++
	s.failed[sandboxID] = f
	return f.n%failing == 0
}

// Denied counts connections that were refused to sandboxes.
func (s *Counter) Denied(used []egress.Usage) {
	for _, u := range used {
		if u.Denied > 0 {
			s.Note(models.SecurityEvent{Kind: models.EgressDenied, SandboxID: u.Sandbox, Times: u.Denied})
		}
	}
}
