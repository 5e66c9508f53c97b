package e2b

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
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/workerclient"
)

const (
	// maxMetrics is how many sandboxes one request may ask about, metricsAtOnce how many are asked at once.
	maxMetrics    = 100
	metricsAtOnce = 16
	// gaugeTimeout is how long a sandbox may think about its figures.
	gaugeTimeout = 5 * time.Second
	// slack is how far an interval's end may lie back that is meant to be now.
	slack = 5 * time.Second
	// endless is later than any sample, in seconds since 1970, and a time that PostgreSQL knows.
	endless = 1 << 37
)

// metricDoc is what a sandbox uses at one moment.
type metricDoc struct {
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

// metrics are the samples that its worker took in the interval asked for, and one that is taken now, if that is in it
// and the sandbox runs.
func (e *Server) metrics(c *fiber.Ctx) error {
	start, err := readNumber(c, "start", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	end, err := readNumber(c, "end", math.MaxInt64, 0, math.MaxInt64)
	if err == nil && end < start {
		err = invalid("start must not be after end")
	}
	if err != nil {
		return err
	}
	start, end = min(start, endless), min(end, endless)
	box, err := e.live(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	samples, err := e.sampled(ctx, box, time.Unix(int64(start), 0), time.Unix(int64(end), 0))
	if err != nil {
		return err
	}
	now := e.Store.Now(ctx)
	if box.State != models.SandboxRunning || int(now.Unix()) < start || int(now.Add(-slack).Unix()) > end {
		return c.JSON(samples)
	}
	m, err := e.metric(ctx, box.ID, now)
	var p *problem.Problem
	switch {
	case err == nil:
		samples = append(samples, m)
	case len(samples) > 0, errors.As(err, &p) && p.Code == string(providers.Paused): // meanwhile
	default:
		return err
	}
	return c.JSON(samples)
}

// sampled are a sandbox's samples of an interval. They are the kernel's, read from outside the sandbox: its files are
// those of all its directories.
func (e *Server) sampled(ctx context.Context, box models.Sandbox, from, to time.Time) ([]metricDoc, error) {
	found, err := e.Store.Samples(ctx, box.ID, from, to)
	if err != nil {
		return nil, err
	}
	listed := e.listed(box)
	total, disk := resourcesOf(box).MemoryMB<<20, listed.DiskSizeMB<<20
	samples := []metricDoc{}
	for _, s := range found {
		samples = append(samples, metricDoc{
			Timestamp: s.At, TimestampUnix: s.At.Unix(), CPUCount: int(listed.CPUCount), CPUUsedPct: s.CPUPercent,
			MemUsed: s.Memory, MemTotal: total, MemCache: s.Cache, DiskUsed: min(s.Files, disk), DiskTotal: disk,
		})
	}
	return samples, nil
}

// allMetrics are samples of those that run among the sandboxes asked about, and answer.
func (e *Server) allMetrics(c *fiber.Ctx) error {
	ids := readIDs(c)
	if len(ids) == 0 || len(ids) > maxMetrics {
		return invalid(fmt.Sprintf("sandbox_ids must name between 1 and %d sandboxes", maxMetrics))
	}
	ctx := c.UserContext()
	found, now := map[string]metricDoc{}, e.Store.Now(ctx)
	var mu sync.Mutex
	var asking sync.WaitGroup
	room := make(chan struct{}, metricsAtOnce)
	for _, id := range ids {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			box, err := e.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, id)
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

// readIDs reads sandbox_ids=a,b, in one or several parameters.
func readIDs(c *fiber.Ctx) []string {
	var ids []string
	for _, given := range c.Context().QueryArgs().PeekMulti("sandbox_ids") {
		ids = append(ids, strings.FieldsFunc(string(given), func(r rune) bool { return r == ',' })...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// metric asks a running sandbox. Its own clock counts nothing.
func (e *Server) metric(ctx context.Context, sandboxID string, now time.Time) (metricDoc, error) {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	g, err := workerclient.JSON[providers.Gauged](ctx, e.Workers, sandboxID, "/gauge", 0)
	return metricDoc{
		Timestamp: now, TimestampUnix: now.Unix(), CPUCount: g.CPUs, CPUUsedPct: g.CPUPercent,
		MemUsed: g.MemUsed, MemTotal: g.MemTotal, MemCache: g.MemCache, DiskUsed: g.DiskUsed, DiskTotal: g.DiskTotal,
	}, err
}
