package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/providers"
)

const (
	// e2bMetrics is how many sandboxes one request may ask about, e2bAsking how many are asked at once.
	e2bMetrics = 100
	e2bAsking  = 16
	// e2bGauge is how long a sandbox may think about its figures.
	e2bGauge = 5 * time.Second
	// e2bSlack is how far an interval's end may lie back that is meant to be now.
	e2bSlack = 5 * time.Second
)

// e2bMetric is what a sandbox uses at one moment.
type e2bMetric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"` // bytes, like all that follow
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// metrics is one sample, taken now, if that is in the interval asked for: nothing is recorded. A paused sandbox has none.
func (e *e2b) metrics(c *fiber.Ctx) error {
	start, err := e2bNumber(c, "start", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	end, err := e2bNumber(c, "end", math.MaxInt64, 0, math.MaxInt64)
	if err == nil && end < start {
		err = e2bInvalid("start must not be after end")
	}
	if err != nil {
		return err
	}
	box, err := e.live(c)
	if err != nil {
		return err
	}
	samples := []e2bMetric{}
	now := e.store.Now(c.UserContext())
	if box.State != models.SandboxRunning || int(now.Unix()) < start || int(now.Add(-e2bSlack).Unix()) > end {
		return c.JSON(samples)
	}
	m, err := e.metric(c.UserContext(), box.ID, now)
	var p *Problem
	if errors.As(err, &p) && p.Code == string(providers.Paused) { // meanwhile
		return c.JSON(samples)
	}
	if err != nil {
		return err
	}
	return c.JSON(append(samples, m))
}

// allMetrics are samples of those that run among the sandboxes asked about, and answer.
func (e *e2b) allMetrics(c *fiber.Ctx) error {
	ids := e2bIDs(c)
	if len(ids) == 0 || len(ids) > e2bMetrics {
		return e2bInvalid(fmt.Sprintf("sandbox_ids must name between 1 and %d sandboxes", e2bMetrics))
	}
	ctx := c.UserContext()
	found, now := map[string]e2bMetric{}, e.store.Now(ctx)
	var mu sync.Mutex
	var asking sync.WaitGroup
	room := make(chan struct{}, e2bAsking)
	for _, id := range ids {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			box, err := e.store.Sandbox(ctx, requestOf(ctx).tenant, id)
			if err != nil || box.State != models.SandboxRunning {
				return
			}
			if m, err := e.metric(ctx, id, now); err == nil {
				mu.Lock()
				defer mu.Unlock()
				found[id] = m
			}
		})
	}
	asking.Wait()
	return c.JSON(fiber.Map{"sandboxes": found})
}

// e2bIDs reads sandbox_ids=a,b, in one or several parameters.
func e2bIDs(c *fiber.Ctx) []string {
	var ids []string
	for _, given := range c.Context().QueryArgs().PeekMulti("sandbox_ids") {
		ids = append(ids, strings.FieldsFunc(string(given), func(r rune) bool { return r == ',' })...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// metric asks a running sandbox. Its own clock counts nothing.
func (e *e2b) metric(ctx context.Context, sandbox string, now time.Time) (e2bMetric, error) {
	ctx, cancel := context.WithTimeout(ctx, e2bGauge)
	defer cancel()
	g, err := insideJSON[providers.Gauged](ctx, e.Server, sandbox, "/gauge", 0)
	return e2bMetric{
		Timestamp: now, TimestampUnix: now.Unix(), CPUCount: g.CPUs, CPUUsedPct: g.CPUPercent,
		MemUsed: g.MemUsed, MemTotal: g.MemTotal, MemCache: g.MemCache, DiskUsed: g.DiskUsed, DiskTotal: g.DiskTotal,
	}, err
}
