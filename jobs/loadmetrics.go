package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/models"
)

// LoadLife is how long the load is believed: to count all live jobs takes a while where there are many.
const LoadLife = 5 * time.Second

// loadPatience is how long PostgreSQL may take for it.
const loadPatience = 5 * time.Second

// loadCollector reads the load from the tables, but not more often than every life.
type loadCollector struct {
	life  time.Duration
	mu    sync.Mutex
	at    time.Time
	stats models.Stats
	err   error

	store                                                                    *models.Store
	jobs, oldest, backlog, sandboxes, nodes, due, lag, late, refused, failed *prometheus.Desc
}

// NewLoadCollector returns the metrics that only the database knows: queue depth, running jobs, sandboxes by state.
// They are at most life old.
func NewLoadCollector(store *models.Store, life time.Duration) prometheus.Collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &loadCollector{
		store: store,
		life:  life,
		jobs: d(
			"sandyard_jobs",
			"Jobs that have not ended, by kind and state (queued is the queue's depth).",
			"kind",
			"state",
		),
		oldest:    d("sandyard_oldest_ready_job_seconds", "Age of the oldest job that is ready to run."),
		backlog:   d("sandyard_window_backlog_jobs", "Ready jobs that wait for room in their tenants' windows."),
		sandboxes: d("sandyard_sandboxes", "Sandboxes that have not ended, by state.", "state"),
		nodes:     d("sandyard_nodes", "Workers with a valid lease."),
		due:       d("sandyard_webhooks_due", "Webhook deliveries that are overdue."),
		lag:       d("sandyard_timeout_lag_seconds", "Delay of the most overdue sandbox timeout."),
		late:      d("sandyard_schedule_lag_seconds", "Delay of the most overdue schedule."),
		refused: d(
			"sandyard_usage_refused_rows",
			"Usage rows that could not be aggregated and were set aside in usage_refused.",
		),
		failed: d("sandyard_load_errors", "1 if these metrics could not be read from the database."),
	}
}

func (c *loadCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.jobs, c.oldest, c.backlog, c.sandboxes, c.nodes, c.due, c.lag, c.late,
		c.refused, c.failed,
	} {
		ch <- d
	}
}

func (c *loadCollector) load() (models.Stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= c.life {
		ctx, cancel := context.WithTimeout(context.Background(), loadPatience)
		defer cancel()
		c.stats, c.err = c.store.Stats(ctx)
		c.at = time.Now()
	}
	return c.stats, c.err
}

func (c *loadCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st, err := c.load()
	if err != nil {
		gauge(c.failed, 1)
		return
	}
	gauge(c.failed, 0)
	for _, q := range st.Jobs {
		gauge(c.jobs, float64(q.Count), q.Kind, string(q.State))
	}
	for state, n := range st.Sandboxes {
		gauge(c.sandboxes, float64(n), string(state))
	}
	gauge(c.oldest, st.OldestReady)
	gauge(c.backlog, float64(st.Backlog))
	gauge(c.nodes, float64(st.Nodes))
	gauge(c.due, float64(st.DueDeliveries))
	gauge(c.lag, st.TimeoutLag)
	gauge(c.late, st.ScheduleLag)
	gauge(c.refused, float64(st.RefusedUsage))
}
