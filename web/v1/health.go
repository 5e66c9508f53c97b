package v1

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sandyard/web/rest"
)

// probePatience is how long a part may take to answer before it counts as down.
const probePatience = 2 * time.Second

// Health says that the process answers.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

// Readiness says which parts that the server needs answer.
type Readiness struct {
	Status     string `json:"status" enum:"ok,unavailable"`
	PostgreSQL string `json:"postgresql" enum:"ok,down"`
	Redis      string `json:"redis" enum:"ok,down"`
}

type readinessOutput struct {
	Status int
	Body   Readiness
}

// health has the routes of the health checks.
type health struct {
	*core
	ready readyCache
}

func (s *health) addHealth() {
	alive := rest.Operation("get-health", "GET /healthz", tagServer, "Check that the process is alive")
	alive.Security = nil
	rest.Register(s.api, alive, func(context.Context, *struct{}) (*rest.Output[Health], error) {
		return rest.OK(Health{"ok", s.Version}), nil
	})
	ready := rest.Operation("get-readiness", "GET /readyz", tagServer, "Check that the server is ready; 503 if not")
	ready.Security = nil
	rest.Register(s.api, ready, s.readiness)
}

// readyLife is how long one answer about readiness is believed: anybody may ask.
const readyLife = time.Second

// readyCache is the last answer about readiness.
type readyCache struct {
	mu  sync.Mutex
	at  time.Time
	out readinessOutput
}

func (s *health) readiness(ctx context.Context, _ *struct{}) (*readinessOutput, error) {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if s.ready.at.IsZero() || time.Since(s.ready.at) > readyLife {
		s.ready.out = s.probeAll(ctx)
		s.ready.at = time.Now()
	}
	out := s.ready.out
	return &out, nil
}

func (s *health) probeAll(ctx context.Context) readinessOutput {
	redis := make(chan string, 1)
	go func() { redis <- s.probe(ctx, s.Queue.Ready) }()
	out := readinessOutput{http.StatusOK, Readiness{"ok", s.probe(ctx, s.Store.Ready), <-redis}}
	if out.Body.PostgreSQL != "ok" || out.Body.Redis != "ok" {
		out.Status, out.Body.Status = http.StatusServiceUnavailable, "unavailable"
	}
	return out
}

// probe keeps the cause for the log: anybody may ask.
func (s *health) probe(ctx context.Context, ready func(context.Context) error) string {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if err := ready(ctx); err != nil {
		s.Log.WarnContext(ctx, "not ready", "error", err)
		return "down"
	}
	return "ok"
}
