package jobs

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/models"
)

// Metrics counts what a worker does.
type Metrics struct {
	duration   *prometheus.HistogramVec
	wait       *prometheus.HistogramVec
	reconciled *prometheus.CounterVec
	diskFree   prometheus.Gauge
	there      prometheus.Gauge
}

// NewMetrics registers a worker's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandyard_job_duration_seconds",
			Help: "Time from the claim to the end of a job's last attempt.", Buckets: buckets,
		}, []string{"kind", "outcome"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandyard_job_queue_seconds",
			Help: "Time from a job's submission to its first claim.", Buckets: buckets,
		}, []string{"kind"}),
		diskFree: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sandyard_disk_free_bytes", Help: "Free space of the disk that holds sandboxes and images; NaN if unknown.",
		}),
		there: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sandyard_provider_available", Help: "1 if the provider answers and takes the operator's key, else 0.",
		}),
		reconciled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandyard_reconciled_total",
			Help: "Repaired differences between an engine and the database: orphans removed, sandboxes lost, states repaired, and unused images, pool containers, guest volumes and outputs removed.",
		}, []string{"what"}),
	}
	for _, what := range kindsOfDifference() {
		m.reconciled.WithLabelValues(what)
	}
	m.diskFree.Set(math.NaN())
	m.available(true)
	reg.MustRegister(m.duration, m.wait, m.reconciled, m.diskFree, m.there)
	return m
}

// available shows whether the provider can be used.
func (m *Metrics) available(is bool) {
	m.there.Set(map[bool]float64{true: 1}[is])
}

func (m *Metrics) observe(o models.Outcome, j models.Job) {
	m.duration.WithLabelValues(o.Kind, string(o.State)).Observe(o.Provider.Seconds())
	if j.StartedAt != nil {
		m.wait.WithLabelValues(o.Kind).Observe(j.StartedAt.Sub(j.QueuedAt).Seconds())
	}
}

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
	for _, d := range []*prometheus.Desc{c.jobs, c.oldest, c.backlog, c.sandboxes, c.nodes, c.due, c.lag, c.late, c.refused, c.failed} {
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
