package web_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs"
	"sandyard/web"
)

// TestLagOfTimeoutsIsPublished: how long the most overdue sandbox waits for a scheduler, of which there is none here.
func TestLagOfTimeoutsIsPublished(t *testing.T) {
	t.Parallel()
	testLag(t, 0, 300)
}

// TestLoadIsNotReadAtEachScrape, which would count all live jobs for each of them.
func TestLoadIsNotReadAtEachScrape(t *testing.T) {
	t.Parallel()
	testLag(t, time.Hour, 0)
}

// testLag looks at the lag with a load that is believed for life, when a sandbox is due since late seconds.
func testLag(t *testing.T, life time.Duration, late float64) {
	t.Helper()
	r := newRig(t, func(c *web.Config) {
		reg := prometheus.NewRegistry()
		reg.MustRegister(jobs.NewLoadCollector(c.Store, life))
		c.Metrics = reg
	})
	lag := func() float64 {
		page := r.call("GET", "/metrics", nil).want(t, 200).raw
		m := regexp.MustCompile(`(?m)^sandyard_timeout_lag_seconds (\S+)$`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("no lag among the metrics:\n%s", page)
		}
		return must(strconv.ParseFloat(m[1], 64))(t)
	}
	for range 3 {
		r.call("POST", "/v1/sandboxes", map[string]any{"timeout_seconds": 3600}).want(t, 202)
	}
	if got := lag(); got != 0 {
		t.Errorf("nothing is due, and the lag is %g s", got)
	}
	r.sql("UPDATE sandboxes SET expires_at = now() - interval '5 minutes' WHERE id = (SELECT min(id) FROM sandboxes)")
	r.sql("UPDATE sandboxes SET expires_at = now() - interval '1 minute' WHERE id = (SELECT max(id) FROM sandboxes)")
	if got := lag(); got < late || got > 2*late {
		t.Errorf("%g s are wanted, and the lag is %g s", late, got)
	}
	r.sql("UPDATE sandboxes SET state = 'deleting'")
	if got := lag(); got != 0 {
		t.Errorf("all are fired, and the lag is %g s", got)
	}
}
